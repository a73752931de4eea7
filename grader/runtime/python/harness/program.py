"""Run one trace on a student's module by the lab's driver: call by call, with a report after each.

Everything here happens in a process that has given up its rights. What the module does to this process (patched
built-in functions, wild objects, endless loops) ends or distorts its own trace only.
"""

import _signal as signal
import errno
import sys
import time

from cage import Refused
from plain import UNREADABLE, Unreadable, class_name, encoded, error_name, message, plain, text_of

identity = object.__hash__
"""Of the very object, as `id`, which an audit event would make several times as slow."""
_MOST_STEPS = 5_000
_MOST_LINES = 200
_MOST_FRAMES = 24
_MOST_EVENTS, _LOOK = 20_000, 0.04
"""The events of a trace, and the seconds of CPU time, in which the loop is looked for that does not end."""


class Ended(Exception):
    """The trace cannot go on; the report about it was sent."""


def absent(file, name):
    """Stand for a demanded class or function that is not written yet: the other ones can be called all the same."""

    def missing(*_, **__):
        raise NameError(f"{file} defines no {name}")

    return missing


class Submission:
    """The submission's module, executed anew, and the lab's driver with its world."""

    def __init__(self, header, code):
        self.header = header
        self.file = header["file"]
        self.driver = header["driver"]
        self.code = code
        self.send = None
        self.missing = []
        self.dropped = False
        self.space = {}
        self.world = None
        self.reads = {}
        self.names = sorted((name, encoded(name)) for name in self.driver["reads"])

    def play(self, operations, report, watched=None, every=1, *, explains=True):
        """Do all operations, and report the record of each, with a state after `every` so many. Raises `Ended`.

        `explains`: lines of refusals are sent.
        """
        self._begin()
        last = len(operations)
        for number, (name, arguments) in enumerate(operations, 1):
            watch = None
            if watched is not None and watched["operation"] == number - 1:
                read = self.reads.get(watched["read"])
                watch = Watch(self.file, read, watched["entry"], name, constructs=number == 1)
            reply = self._call(name, arguments, watch, explains)
            if watch is not None:
                self.send(b"L", encoded(watch.seen()).encode())
            state = self._state() if number % every == 0 or number == last else "{}"
            report(f'{{"reply":{reply},"state":{state}}}')

    def check(self):
        """Execute the module alone, and report which demanded names it lacks. Raises `Ended`."""
        self.execute()
        self.send(b"C", encoded({"missing": self.missing}).encode())

    def execute(self):
        """Execute the given modules and the student's, which then may be imported under their names. Raises `Ended`."""
        for name, code in self.header["given"].items():
            module = sys.modules[name] = type(sys)(name)
            exec(code, module.__dict__)
        module = sys.modules[self.header["module"]] = type(sys)(self.header["module"])
        module.__dict__["__file__"] = self.file
        try:
            exec(self.code, module.__dict__)
        except BaseException as error:
            self._report(error, "import")
            raise Ended from None
        self.missing = [name for name in self.header["demanded"] if name not in module.__dict__]
        for name in self.missing:
            module.__dict__[name] = absent(self.file, name)

    def _begin(self):
        """Make a new world. The driver, executed once, keeps nothing elsewhere."""
        try:
            if not self.space:
                self.space.update(__name__="<driver>", id=identity)
                exec(self.driver["code"], self.space)
            self.world = self.space["World"]()
            self.reads = self.space["read"](self.world)
        except BaseException as error:
            self._report(error, "import")
            raise Ended from None

    def _call(self, name, arguments, watch, explains):
        """Make a call and return the text of its reply as a record has it."""
        call = self.space[name]
        try:
            if name in self.driver["takes"]:
                arguments = [*map(self._taken, self.driver["takes"][name], arguments)]
        except BaseException as error:
            self._report(error, "argument")
            raise Ended from None
        try:
            if watch is not None:
                watch.begin()
            try:
                value = call(self.world, *arguments)
            finally:
                if watch is not None:
                    watch.end()
        except BaseException as error:
            raised = error_name(error)
            if raised in self.driver["errors"]:
                if explains:
                    self.send(b"R", encoded({"lines": self._lines(error)}).encode())
                return f'{{"raised":"{raised}"}}'
            self._report(error, "call")
            raise Ended from None
        try:
            reader = self.driver["gives"].get(name)
            value = value if reader is None else self.space[reader](self.world, value)
            return f'{{"returned":{text_of(value)}}}'
        except BaseException as error:
            return f'{{"returned":{_unreadable(error)}}}'

    def _taken(self, place, value):
        """The objects that an argument stands for."""
        if place is None:
            return value
        attribute, several = place
        objects = getattr(self.world, attribute)
        return [objects[item] for item in value] if several else objects[value]

    def _state(self):
        """Read each part of the state; one that cannot be read takes no other with it."""
        state = {}
        for name, read in self.reads.items():
            try:
                state[name] = text_of(read())
            except BaseException as error:
                state[name] = _unreadable(error)
        return f"{{{','.join([f'{key}:{state[name]}' for name, key in self.names])}}}"

    def _report(self, error, where):
        """Say which error ended the trace, and at which lines of the student's."""
        described = {
            "where": where,
            "error": error_name(error),
            "message": message(error),
            "class": class_name(type(error)),
            "refused": _refused(error),
            "lines": self._lines(error),
        }
        self.send(b"X", encoded(described).encode())

    def _lines(self, error):
        """The student's lines on an error's way, those of the called method first."""
        entry = BaseException.__dict__["__traceback__"].__get__(error)
        seen = []
        while entry is not None and len(seen) < _MOST_FRAMES:
            code = entry.tb_frame.f_code
            if code.co_filename == self.file:
                seen.append([entry.tb_lineno, code.co_name])
            entry = entry.tb_next
        return seen

    def report_dropped(self, frame):
        """Say, once, at which line a file was opened whose content nobody will read."""
        lines = stack_of(frame, self.file)
        if lines and not self.dropped:
            self.dropped = True
            self.send(b"N", encoded({"lines": lines}).encode())

    def report_interruption(self, lines):
        """Say at which lines the program is when its time is used up."""
        self.send(b"H", encoded({"lines": lines[:_MOST_FRAMES]}).encode())


def _refused(error):
    """The name of the call that was refused, where that is what an error says."""
    if type(error) is Refused and type(error.event) is str:
        return error.event
    return "what makes a pipe or the like" if type(error) is OSError and error.errno == errno.EMFILE else ""


def _unreadable(error):
    """The text of a value that could not be read."""
    return encoded({UNREADABLE: _what(error)})


def _what(error):
    """What is wrong with a value that could not be read."""
    if type(error) is Unreadable:
        return error.args[0]
    text = message(error)
    return f"{error_name(error)}: {text}" if text else error_name(error)


def answer_interruptions(program):
    """Report where the program is when SIGPROF asks, and then in which loop."""

    def asked(_, frame):
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        loop = EndlessLoop(program, frame)
        program.report_interruption(loop.lines)
        loop.begin()

    signal.signal(signal.SIGPROF, asked)


class EndlessLoop:
    """Finds the loop that does not end: it is in the outermost of the student's frames in which lines still run."""

    def __init__(self, program, frame):
        self.program = program
        self.frames = frames_of(frame, program.file)
        self.places = {each: place for place, each in enumerate(self.frames)}
        self.lines = [[each.f_lineno, each.f_code.co_name] for each in self.frames]
        self.first = {}  # by place, the first of the lines that ran in a frame
        self.events = 0
        self.until = 0.0

    def begin(self):
        """Look at what runs from here on, for a moment."""
        self.until = time.thread_time() + _LOOK
        for each in self.frames:
            each.f_trace = self._trace
        sys.settrace(self._trace)

    def _trace(self, frame, event, _):
        self.events += 1
        place = self.places.get(frame)
        if place is not None and event == "line":
            self.first[place] = min(frame.f_lineno, self.first.get(place, frame.f_lineno))
        if self.events < _MOST_EVENTS and time.thread_time() < self.until:
            return self._trace
        sys.settrace(None)
        outermost = min(self.first, default=len(self.lines) - 1)
        if self.lines:
            self.lines[outermost][0] = self.first.get(outermost, self.lines[outermost][0])
        self.program.report_interruption(self.lines[: outermost + 1])
        return None


def stack_of(frame, file):
    """The student's lines on the stack of a frame, those of the called method first."""
    return [[each.f_lineno, each.f_code.co_name] for each in frames_of(frame, file)][:_MOST_FRAMES]


def frames_of(frame, file):
    """The student's frames on the stack of a frame, that of the called method first."""
    frames = []
    while frame is not None:
        if frame.f_code.co_filename == file:
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _is_in(operation, code):
    """Whether this is the code of an operation of the driver, or of a comprehension in it."""
    return code.co_filename == "<driver>" and code.co_qualname.partition(".")[0] == operation


class Watch:
    """Traces one call: after which line the watched part of the state changed last, and which `return` was taken."""

    def __init__(self, file, read, entry, call, *, constructs):
        """`constructs`: the call makes what is read, so it is not seen in it which line gave it its value."""
        self.file = file
        self.constructs = constructs
        self.caller = call
        self.read = read
        self.entry = entry
        self.value = self._value()
        self.before = []
        self.changed = []
        self.returned = []
        self.ran, self.ran_besides = {}, {}  # lines with their functions; the second of what helpers of the driver call
        self.depth = 0
        self.calls = False  # whether lines of further functions of the student ran
        self.direct = False  # whether the operation itself made the call that is being traced
        self.steps = 0

    def begin(self):
        """Trace from here on."""
        sys.settrace(self._enter)

    def end(self):
        """Trace no more, and look once more."""
        sys.settrace(None)
        self._look()

    def seen(self):
        """What was seen: the stack of the line that changed it last, of the return, and the lines that ran."""
        if self.constructs:
            return {"returned": self.returned}
        ran = self.ran or self.ran_besides
        lines = [[line, ran[line]] for line in sorted(ran)[:_MOST_LINES]]
        return {"changed": self.changed, "returned": self.returned, "ran": lines, "calls": self.calls}

    def _enter(self, frame, event, _):
        if frame.f_code.co_filename != self.file:
            return None
        if self.depth == 0:
            self.direct = frame.f_back is not None and _is_in(self.caller, frame.f_back.f_code)
        self.depth += 1
        return self._inside

    def _inside(self, frame, event, argument):
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return None
        self._look()
        if event == "line":
            self.before = stack_of(frame, self.file)
            if self.depth == 1:
                (self.ran if self.direct else self.ran_besides)[frame.f_lineno] = frame.f_code.co_name
            else:
                self.calls = True
        elif event == "return":
            self.depth -= 1
            if self.depth == 0 and (self.direct or not self.ran):
                self.returned = stack_of(frame, self.file)
        return self._inside

    def _look(self):
        """Note the line before, if it changed the watched part."""
        value = self._value()
        if value != self.value:
            self.value = value
            self.changed = self.before

    def _value(self):
        if self.read is None:
            return None
        try:
            value = plain(self.read())
        except BaseException:  # a part that cannot be read has a value of its own
            return "?"
        if self.entry and type(value) is list:
            place = int(self.entry)
            return value[place] if place < len(value) else "?"
        return value.get(self.entry) if self.entry and type(value) is dict else value
