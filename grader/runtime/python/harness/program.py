"""Run one trace on a student's module by the lab's driver: call by call, with a report after each.

Everything here happens in a process that has given up its rights. What the module does to this process (patched
built-in functions, wild objects, endless loops) ends or distorts only its own trace.
"""

import _signal as signal
import errno
import sys
import time

from cage import Refused
from plain import UNREADABLE, Unreadable, class_name, encoded, error_name, error_names, message, plain, text_of

identity = object.__hash__
"""The identity of an object, like `id`, but several times as fast, because it has no audit event."""
_MOST_STEPS = 5_000
_MOST_FRAMES = 24
_MOST_EVENTS, _LOOK = 20_000, 0.04
"""The limits of the search for an endless loop: trace events (of `Steps` too), and seconds of CPU time."""


class Ended(Exception):
    """The trace cannot go on; the report about it was sent."""


def absent(file, name):
    """Return a replacement for a demanded class or function that is not written yet, so that others can be called."""

    def missing(*_, **__):
        raise NameError(f"{file} defines no {name}")

    return missing


class Submission:
    """The submission's module, and the lab's driver with its world."""

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
        """Do all operations, and report the record of each. Raises `Ended`.

        Only every `every`-th record and the last one have a state. `watched` names the operation to trace; if its
        operation is None, all are traced, and no record has a state. `explains`: send where refusals were raised.
        """
        self._begin()
        last = len(operations)
        for number, (name, arguments) in enumerate(operations, 1):
            watch = None
            if watched is not None and watched["operation"] is None:
                watch = Steps(self.file)
            elif watched is not None and watched["operation"] == number - 1:
                read = self.reads.get(watched["read"])
                watch = Watch(self.file, read, watched["entry"], name, constructs=number == 1)
            steps = type(watch) is Steps
            reply = self._call(name, arguments, watch, explains and not steps)
            if watch is not None:
                self.send(b"L", encoded(watch.seen()).encode())
            state = self._state() if (number % every == 0 or number == last) and not steps else "{}"
            report(f'{{"reply":{reply},"state":{state}}}')

    def check(self):
        """Execute only the module, and report which demanded names it lacks. Raises `Ended`."""
        self.execute()
        self.send(b"C", encoded({"missing": self.missing}).encode())

    def execute(self, variant=None):
        """Execute the given modules and the student's, or a variant of it. Raises `Ended`."""
        for name, code in self.header["given"].items():
            module = sys.modules[name] = type(sys)(name)
            exec(code, module.__dict__)
        module = sys.modules[self.header["module"]] = type(sys)(self.header["module"])
        module.__dict__["__file__"] = self.file
        try:
            code = self.code if variant is None else compile(variant, self.file, "exec", dont_inherit=True)
            exec(code, module.__dict__)
        except BaseException as error:
            self._report(error, "import")
            raise Ended from None
        self.missing = [name for name in self.header["demanded"] if name not in module.__dict__]
        for name in self.missing:
            module.__dict__[name] = absent(self.file, name)

    def _begin(self):
        """Make a new world. The driver itself is executed only once, because it keeps nothing outside of its world."""
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
        """Make a call and return the text of its reply for the record."""
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
            raised = next((name for name in error_names(error) if name in self.driver["errors"]), "")
            if raised:
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
        """Return the objects that an argument names."""
        if place is None:
            return value
        attribute, several = place
        objects = getattr(self.world, attribute)
        return [objects[item] for item in value] if several else objects[value]

    def _state(self):
        """Read each part of the state, even if another part cannot be read."""
        state = {}
        for name, read in self.reads.items():
            try:
                state[name] = text_of(read())
            except BaseException as error:
                state[name] = _unreadable(error)
        return f"{{{','.join([f'{key}:{state[name]}' for name, key in self.names])}}}"

    def _report(self, error, where):
        """Report which error ended the trace, and at which lines of the student's file."""
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
        """Return the student's innermost lines in the traceback of an error, the line that raised it last."""
        entry = BaseException.__dict__["__traceback__"].__get__(error)
        seen = []
        while entry is not None:
            code = entry.tb_frame.f_code
            if code.co_filename == self.file:
                seen.append([entry.tb_lineno, code.co_name])
                del seen[:-_MOST_FRAMES]
            entry = entry.tb_next
        return seen

    def report_dropped(self, frame):
        """Report, once, the line that opened a file whose content is dropped."""
        lines = stack_of(frame, self.file)
        if lines and not self.dropped:
            self.dropped = True
            self.send(b"N", encoded({"lines": lines}).encode())

    def report_interruption(self, lines):
        """Report the lines where the program is when its time is used up."""
        self.send(b"H", encoded({"lines": lines[-_MOST_FRAMES:]}).encode())


def _refused(error):
    """Return the name of the call that was refused; "" for other errors."""
    if type(error) is Refused and type(error.event) is str:
        return error.event
    return "what makes a pipe or the like" if type(error) is OSError and error.errno == errno.EMFILE else ""


def _unreadable(error):
    """Return the text of a value that could not be read."""
    return encoded({UNREADABLE: _what(error)})


def _what(error):
    """Return what is wrong with a value that could not be read."""
    if type(error) is Unreadable:
        return error.args[0]
    text = message(error)
    return f"{error_name(error)}: {text}" if text else error_name(error)


def answer_interruptions(program):
    """At a SIGPROF report where the program is, and later the loop in which it is."""

    def asked(_, frame):
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        loop = EndlessLoop(program, frame)
        program.report_interruption(loop.lines)
        loop.begin()

    signal.signal(signal.SIGPROF, asked)


class EndlessLoop:
    """Finds the endless loop: it is in the outermost of the student's frames in which lines still run."""

    def __init__(self, program, frame):
        self.program = program
        self.frames = frames_of(frame, program.file)
        self.places = {each: place for place, each in enumerate(self.frames)}
        self.lines = [[each.f_lineno, each.f_code.co_name] for each in self.frames]
        self.first = {}  # by place, the first of the lines that ran in a frame
        self.events = 0
        self.until = 0.0

    def begin(self):
        """Trace the program for a moment from now on."""
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
    """Return the student's lines on the stack of a frame, those of the called method first."""
    return [[each.f_lineno, each.f_code.co_name] for each in frames_of(frame, file)][-_MOST_FRAMES:]


def frames_of(frame, file):
    """Return the student's frames on the stack of a frame, that of the called method first."""
    frames = []
    while frame is not None:
        if frame.f_code.co_filename == file:
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _is_in(operation, code):
    """Return whether this is the code of an operation of the driver, or of a comprehension in it."""
    return code.co_filename == "<driver>" and code.co_qualname.partition(".")[0] == operation


class Steps:
    """Traces one call: the lines that ran, and for each the lines that ran next."""

    def __init__(self, file):
        self.file = file
        self.line = self.events = 0
        self.ran = {}  # lines with their functions
        self.steps = set()

    def begin(self):
        """Begin to trace."""
        sys.settrace(self._enter)

    def end(self):
        """Stop tracing."""
        sys.settrace(None)

    def seen(self):
        """Return the lines that ran, and the steps from line to line; each line alone counts as a step to line 0."""
        steps = [*self.steps, *((line, 0) for line in self.ran)]
        return {"ran": list(map(list, self.ran.items())), "steps": sorted(map(list, steps))}

    def _enter(self, frame, *_):
        return self._inside if frame.f_code.co_filename == self.file else None

    def _inside(self, frame, event, _):
        if event == "line":
            line = frame.f_lineno
            self.ran[line] = frame.f_code.co_name
            if self.line not in {0, line}:
                self.steps.add((self.line, line))
            self.line = line
            self.events += 1
            if self.events > _MOST_EVENTS:
                sys.settrace(None)
                return None
        return self._inside


class Watch:
    """Traces one call: after which line the watched part of the state changed last, and which `return` was taken."""

    def __init__(self, file, read, entry, call, *, constructs):
        """`constructs`: the call makes the watched value, so the line that gave it its value cannot be seen."""
        self.file = file
        self.constructs = constructs
        self.caller = call
        self.read = read
        self.entry = entry
        self.value = self._value()
        self.before = []
        self.changed = []
        self.returned = []
        self.depth = 0
        self.direct = False  # whether the operation made the call that is being traced, not a helper of the driver
        self.made_one = False  # whether the operation itself has made a call
        self.steps = 0

    def begin(self):
        """Begin to trace."""
        sys.settrace(self._enter)

    def end(self):
        """Stop tracing, and compare the watched part once more."""
        sys.settrace(None)
        self._look()

    def seen(self):
        """Return the stacks of the line that changed the value last and of the return."""
        return {"changed": None if self.constructs else self.changed, "returned": self.returned}

    def _enter(self, frame, event, _):
        if frame.f_code.co_filename != self.file:
            return None
        if self.depth == 0:
            self.direct = frame.f_back is not None and _is_in(self.caller, frame.f_back.f_code)
            self.made_one |= self.direct
        self.depth += 1
        return self._inside

    def _inside(self, frame, event, argument):
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return None
        self._look()
        if event == "line":
            self.before = stack_of(frame, self.file)
        elif event == "return":
            self.depth -= 1
            if self.depth == 0 and (self.direct or not self.made_one):
                self.returned = stack_of(frame, self.file)
        return self._inside

    def _look(self):
        """If the watched part has changed, note the line that ran before."""
        value = self._value()
        if value != self.value:
            self.value = value
            self.changed = self.before if self.steps <= _MOST_STEPS else None  # later lines were not traced

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
