"""Find the line of a student's file behind a wrong state or reply, by tracing the one operation that shows it."""

import sys

from plain import plain

_MOST_STEPS = 5_000
_MOST_LINES = 200
_MOST_FRAMES = 24


def stack_of(frame, file):
    """The student's lines on the stack of a frame, those of the called method first."""
    seen = []
    while frame is not None:
        if frame.f_code.co_filename == file:
            seen.append([frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back
    return seen[::-1][:_MOST_FRAMES]


class Watch:
    """Traces one call: after which line the watched part of the state changed last, and which `return` was taken."""

    def __init__(self, file, read, entry, call):
        self.file = file
        self.caller = f"<{call}>"
        self.read = read
        self.entry = entry
        self.value = self._value()
        self.before = []
        self.changed = []
        self.returned = []
        self.ran, self.ran_besides = {}, {}  # lines with their functions; the second of what table functions call
        self.depth = 0
        self.direct = False  # whether the call text itself made the call that is being traced
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
        ran = self.ran or self.ran_besides
        lines = [[line, ran[line]] for line in sorted(ran)[:_MOST_LINES]]
        return {"changed": self.changed, "returned": self.returned, "ran": lines}

    def _enter(self, frame, event, _):
        if frame.f_code.co_filename != self.file:
            return None
        if self.depth == 0:
            self.direct = frame.f_back is not None and frame.f_back.f_code.co_filename == self.caller
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
