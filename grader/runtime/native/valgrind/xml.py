"""Valgrind's XML: its errors, each with the case and operation that the harness's client messages tell.

The document may end anywhere (a crash, a hostile program), and student code may write into it. Therefore it is read
piece by piece, once, up to stated sizes; a message counts when it has the run's token and fits how far the program
came. Names of functions stand in it as the student's object has them, with bytes that no XML can carry: they are
decoded as plain text first, for an error that cannot be read is an error that is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from xml.etree import ElementTree as ET

from grader.core.errors import DriverError
from grader.core.sanitize import decoded
from grader.core.verdict import SourceLine
from grader.runtime.memory_faults import LEAK, MemoryFault
from grader.runtime.native.valgrind.progress import RunProgress
from grader.runtime.source_lines import Place

__all__ = ["MOST_XML", "LookUp", "ReadReport", "read"]

MOST_XML = 4_000_000
"""Bytes; the most that Valgrind said of any sample are 440,000."""

_MOST_PIECE = 65_536
"""Bytes of one error; no sample has one of more than 4,200."""

_MOST_ERRORS = 1000
"""Of one process; no sample has more than 80."""

_MOST_PIECES = 50_000
"""Errors and messages; no sample has more than 3,900."""

_MOST_STACKS, _MOST_FRAMES = 3, 32
"""Of an error, and of each of its stacks."""

_MOST_FORBIDDEN = 16
"""Of one operation; harness.c tells no more."""

_MOST_NAMED = 2000
_ERROR, _MESSAGE = b"error", b"clientmsg"
_WORDS = re.compile(r"pkv (errors|leaks|forbidden|hang) ([0-9a-f]{1,16}) ([0-9a-f]{1,16}) ([0-9a-f]{1,16})")
_ADDRESS = re.compile(r"Address 0x([0-9A-Fa-f]{1,16})")
_DIGITS = 20

Stack = tuple[int, ...]
LookUp = Callable[[Sequence[Stack]], Mapping[Stack, tuple[SourceLine, ...]]]
"""The student's lines on stacks of addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """What a document says."""

    errors: tuple[MemoryFault, ...]
    where: tuple[SourceLine, ...] = ()
    """The student's lines on the stack of a program that was asked where it is."""
    unread: str = ""
    """Why something of it was not read: in words that fit behind "Valgrind's report"; "" when all was."""


@dataclass(frozen=True, slots=True)
class _Error:
    kind: str
    message: str
    beside: str
    """What Valgrind says of the memory."""
    stacks: tuple[Stack, ...]
    lines: tuple[tuple[SourceLine, ...], ...]
    """The student's lines on each of the stacks."""


@dataclass(slots=True)
class _Reading:
    """Errors wait for the next message, which says where they belong."""

    course: RunProgress
    source_name: str
    waiting: list[_Error] = field(default_factory=list)
    forbidden: list[tuple[int, int]] = field(default_factory=list)
    placed: list[tuple[Place, _Error, bool]] = field(default_factory=list)
    after: Place | None = None
    where: tuple[SourceLine, ...] = ()

    def message(self, element: ET.Element) -> None:
        """What the harness has put there."""
        words = _WORDS.search(element.findtext("text") or "")
        if words is None or int(words[2], 16) != self.course.token:
            return
        if words[1] == "forbidden":
            if len(self.forbidden) < _MOST_FORBIDDEN:
                self.forbidden.append((int(words[3], 16), int(words[4], 16)))
            return
        place = int(words[3], 16), int(words[4], 16)
        if words[1] == "hang":
            self.where = next((tuple(_lines(one, self.source_name)) for one in element.iter("stack")), ())
        elif self.course.fits(place, after=self.after, leaks=words[1] == "leaks"):
            self.place(place)
            self.after = place

    def place(self, place: Place) -> None:
        """This is where they belong."""
        self.placed += [(place, error, _is_breach(error, self.forbidden)) for error in self.waiting]
        self.waiting.clear()
        self.forbidden.clear()


def read(document: bytes, course: RunProgress, source_name: str, look_up: LookUp) -> ReadReport:
    """Each error with its place; behind the last message it is where the process died.

    Of a call that gcc put a function of a system header into Valgrind names the header's line, and of an inlined
    function the one around it; `look_up` knows both.
    """
    reading = _Reading(course, source_name)
    unread = "" if len(document) <= MOST_XML else f"is longer than {MOST_XML // 1_000_000} MB"
    for number, (kind, piece) in enumerate(_pieces(document[:MOST_XML])):
        if len(piece) > _MOST_PIECE:
            unread = f"has an error of more than {_MOST_PIECE // 1024} KB"
            break
        if number > _MOST_PIECES:
            unread = f"has more than {_MOST_PIECES} pieces"
            break
        try:
            element = ET.fromstring(decoded(piece))
        except ET.ParseError:
            continue
        if kind == _MESSAGE:
            reading.message(element)
        elif len(reading.placed) + len(reading.waiting) < _MOST_ERRORS:
            reading.waiting.append(_error(element, source_name))
        else:
            unread = f"has more than {_MOST_ERRORS} errors"
            break
    if not (unread or reading.placed or reading.waiting) and any(course.counted.values()):
        unread = "has none of the errors that were counted"  # the first time each of them is printed
    # what was cut off could not free any more: its leaks, which Valgrind tells of at the end, are none
    reading.waiting = [error for error in reading.waiting if not error.kind.startswith(LEAK)]
    reading.forbidden.clear()
    reading.place(course.at)
    faults = list(_faults(reading.placed, look_up))
    told = [fault for fault in faults if fault.lines or fault.auxiliary]  # without a line it is none of theirs
    if not any(_costs(fault) for fault in told):  # but for what happened in their calls, in a file that hides its lines
        told += [fault for fault in faults if _costs(fault) and course.counted.get((fault.case, fault.operation))]
    return ReadReport(errors=tuple(told), where=reading.where, unread=unread)


def _costs(fault: MemoryFault) -> bool:
    return not (fault.breach or fault.kind.startswith(LEAK))


def _pieces(document: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Errors and messages, in their order; what was begun before one of them and never ended is passed over."""
    ends = {kind: document.find(b"</%s>" % kind) for kind in (_ERROR, _MESSAGE)}
    start = 0
    while found := [(end, kind) for kind, end in ends.items() if end >= 0]:
        end, kind = min(found)
        behind = end + len(b"</%s>" % kind)
        opening = document.rfind(b"<%s>" % kind, start, end)
        if opening >= 0:
            yield kind, document[opening:behind]
        start = behind
        ends[kind] = document.find(b"</%s>" % kind, start)


def _error(element: ET.Element, source_name: str) -> _Error:
    stacks = list(islice(element.iter("stack"), _MOST_STACKS))
    return _Error(
        kind=element.findtext("kind") or "",
        message=element.findtext("what") or element.findtext("xwhat/text") or "",
        beside=element.findtext("auxwhat") or "",
        stacks=tuple(tuple(_addresses(stack)) for stack in stacks),
        lines=tuple(tuple(_lines(stack, source_name)) for stack in stacks),
    )


def _faults(placed: Sequence[tuple[Place, _Error, bool]], look_up: LookUp) -> Iterator[MemoryFault]:
    """With the function of each line in which there was an error; Valgrind's word is taken where it is not known."""
    if not placed:
        return
    addresses = dict.fromkeys(address for _, error, _ in placed for stack in error.stacks for address in stack)
    everything = tuple(islice(addresses, _MOST_NAMED))
    unknown = [stack for _, error, _ in placed if not any(error.lines) for stack in error.stacks]
    try:
        found = look_up([everything, *unknown])
    except DriverError:
        if unknown:
            raise
        found = {}
    names = {line.line: line.function for line in found.get(everything, ())}
    for (case, operation), error, breach in placed:
        lines = [
            tuple(replace(line, function=names.get(line.line, line.function)) for line in one) for one in error.lines
        ]
        if not any(lines):
            lines = [found.get(stack, ()) for stack in error.stacks]
        yield MemoryFault(
            case=case,
            operation=operation,
            kind=error.kind,
            message=error.message,
            lines=lines[0] if lines else (),
            auxiliary=lines[1] if len(lines) > 1 else (),
            breach=breach,
            freed=error.beside.endswith("free'd"),
        )


def _is_breach(error: _Error, forbidden: Sequence[tuple[int, int]]) -> bool:
    address = _ADDRESS.match(error.beside)
    return address is not None and any(start <= int(address[1], 16) < end for start, end in forbidden)


def _addresses(stack: ET.Element) -> Iterator[int]:
    for frame in islice(stack.iter("frame"), _MOST_FRAMES):
        yield _number(frame.findtext("ip"), 16)


def _number(text: str | None, base: int) -> int:
    """0 for what is none: a program may have written into the channel."""
    try:
        number = int((text or "0")[:_DIGITS], base)
    except ValueError:
        return 0
    return number if 0 <= number < 1 << 64 else 0


def _lines(stack: ET.Element, source_name: str) -> Iterator[SourceLine]:
    for frame in islice(stack.iter("frame"), _MOST_FRAMES):
        if frame.findtext("file") == source_name:
            yield SourceLine(
                file=source_name, line=_number(frame.findtext("line"), 10), function=frame.findtext("fn") or ""
            )
