"""Run one trace on a student's module: call by call, with a report after each.

Everything here happens in a process that has given up its rights. What the module does to this process (patched
built-in functions, wild objects, endless loops) ends or distorts its own trace only.
"""

import signal
import sys
import types

import lines
import table
from plain import UNREADABLE, Unreadable, class_name, encoded, error_name, message, place_of, places_of, plain

_MOST_FRAMES = 24


class Ended(Exception):
    """The trace cannot go on; the report about it was sent."""


def absent(file, name):
    """Stand for a demanded class or function that is not written yet: the other ones can be called all the same."""

    def missing(*_, **__):
        raise NameError(f"{file} defines no {name}")

    return missing


class Program:
    """The submission's module, executed anew, and the names by which the lab's table speaks of its objects."""

    def __init__(self, compiled, code, name, file, demanded, given, send):
        self.table = compiled
        self.code = code
        self.name = name
        self.file = file
        self.demanded = demanded
        self.given = given
        self.send = send
        self.missing = []
        self.space = {}
        self.calls = self.takes = self.among = self.reads = {}

    def play(self, operations, report, watched=None, every=1):
        """Do all operations, and report the record of each, with a state after `every` so many. Raises `Ended`."""
        self._begin()
        last = len(operations)
        for number, (name, arguments) in enumerate(operations):
            watch = None
            if watched is not None and watched["operation"] == number:
                watch = lines.Watch(self.file, self.reads.get(watched["read"]), watched["entry"], name)
            reply = self._call(name, arguments, watch)
            if watch is not None:
                self.send(b"L", encoded(watch.seen()).encode())
            read = (number + 1) % every == 0 or number + 1 == last
            report({"reply": reply, "state": self._state() if read else {}})

    def check(self):
        """Execute the module alone, and report which demanded names it lacks. Raises `Ended`."""
        self.execute()
        self.send(b"C", encoded({"missing": self.missing}).encode())

    def execute(self):
        """Execute the given modules and the student's, which then may be imported under their names. Raises `Ended`."""
        self.given.execute()
        module = sys.modules[self.name] = types.ModuleType(self.name)
        module.__dict__["__file__"] = self.file
        try:
            exec(self.code, module.__dict__)
        except BaseException as error:
            self._report(error, "import")
            raise Ended from None
        self.missing = [name for name in self.demanded if name not in module.__dict__]
        for name in self.missing:
            module.__dict__[name] = absent(self.file, name)

    def _begin(self):
        """Make the names anew by which the table speaks of the module and its objects."""
        self.space = {"__name__": "<table>", "place_of": place_of, "places_of": places_of}
        self.space["calls_of"] = self.given.calls_of
        try:
            exec(self.table.setup, self.space)
            exec(self.table.defines, self.space)
        except BaseException as error:
            self._report(error, "import")
            raise Ended from None
        self.calls, self.takes = (table.bound(codes, self.space) for codes in (self.table.calls, self.table.takes))
        self.among, self.reads = (table.bound(codes, self.space) for codes in (self.table.among, self.table.reads))

    def _call(self, name, arguments, watch):
        """Make a call and return its reply as a record has it."""
        call, takes = self.calls[name], self.takes
        try:
            for parameter, value in zip(self.table.parameters[name], arguments, strict=True):
                self.space[parameter] = takes[parameter](value) if parameter in takes else value
        except BaseException as error:
            self._report(error, "argument")
            raise Ended from None
        try:
            if watch is not None:
                watch.begin()
            try:
                value = call()
            finally:
                if watch is not None:
                    watch.end()
        except BaseException as error:
            raised = error_name(error)
            if raised in self.table.errors:
                self.send(b"R", encoded({"lines": self._lines(error)}).encode())
                return {"raised": raised}
            self._report(error, "call")
            raise Ended from None
        try:
            return {"returned": self._given_back(name, value)}
        except BaseException as error:
            return {"returned": {UNREADABLE: _what(error)}}

    def _given_back(self, name, value):
        """Read what a call returned: by identity where the table says so."""
        reader = self.table.gives.get(name)
        if reader is None:
            return plain(value)
        among = self.among.get(reader)
        if among is None:
            return plain(self.space[reader](value))
        objects = among()
        return places_of(value, objects) if type(value) in (list, tuple) else place_of(value, objects)

    def _state(self):
        """Read each part of the state; one that cannot be read takes no other with it."""
        state = {}
        for name, read in self.reads.items():
            try:
                state[name] = plain(read())
            except BaseException as error:
                state[name] = {UNREADABLE: _what(error)}
        return state

    def _report(self, error, where):
        """Say which error ended the trace, and at which lines of the student's."""
        described = {
            "where": where,
            "error": error_name(error),
            "message": message(error),
            "class": class_name(type(error)),
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

    def report_interruption(self, frame):
        """Say at which lines the program is when its time is used up."""
        self.send(b"H", encoded({"lines": lines.stack_of(frame, self.file)}).encode())


def _what(error):
    """What is wrong with a value that could not be read."""
    if type(error) is Unreadable:
        return error.args[0]
    text = message(error)
    return f"{error_name(error)}: {text}" if text else error_name(error)


def answer_interruptions(program):
    """Report where the program is when SIGPROF asks."""

    def asked(_, frame):
        program.report_interruption(frame)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)

    signal.signal(signal.SIGPROF, asked)
