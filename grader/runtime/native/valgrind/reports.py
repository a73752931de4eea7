"""What one process under Valgrind reports: the harness's frames (messages), which say how far it got, and the XML.

All cases share the process with student code, which can find the token of frames and send frames too. A frame of a case
that is not running, or of another operation than the next one, is ignored. So only cases and operations of the plan are
ever recorded, each once.

The XML has errors, each with the case and operation that the harness's client messages report, and lists of memory that
was never freed. The document may end anywhere (a crash, a hostile program), and student code may write into it.
Therefore it is read piece by piece, once, up to stated sizes. A message counts when it has the run's token and fits how
far the program got. Valgrind writes function names as in the student's object, even with bytes that XML does not allow.
So each piece is decoded as plain text first, because an error that cannot be read would be hidden.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree as ET

from grader.core.errors import OptionalStage, OptionalStages
from grader.core.sanitize import decoded
from grader.core.verdict import SourceLine
from grader.runtime.native.replay import FrameKind, HarnessFrame
from grader.runtime.native.valgrind.memory_faults import MemoryFault, Unfreed
from grader.runtime.protocol import Place

_COUNT = struct.Struct("<i")

Heap = tuple[int, int, int]
"""The numbers of allocations and of frees in an operation, and of the allocations live after it."""


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """How far a program got, according to its frames; frames that cannot be true are ignored."""

    planned: Mapping[int, int]
    """The cases in their order, each with the number of its operations."""
    token: int
    begun: list[int] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    counted: dict[Place, int] = field(default_factory=dict)
    """The number of errors that Valgrind counted in each operation that returned, even if it is 0."""
    did: dict[int, list[Heap]] = field(default_factory=dict)
    """For each case, what its operations did to the heap."""
    left: dict[int, int] = field(default_factory=dict)
    """For each case that ended, how many allocations the harness reports as left."""
    _running: int | None = None

    @property
    def at(self) -> Place:
        """The case and operation that the program reached."""
        return (self.begun[-1], len(self.did[self.begun[-1]])) if self.begun else (-1, 0)

    @property
    def through(self) -> bool:
        """Whether all cases came to their end."""
        return len(self.ended) == len(self.planned)

    def did_all(self, case: int) -> bool:
        """Whether the program did all operations of the case; it stops before a poke that does not fit its state."""
        return len(self.did[case]) == self.planned[case]

    def fits(self, place: Place, *, after: Place | None, leaks: bool) -> bool:
        """Return whether the harness can have marked errors (or `leaks`) at this place, which comes after `after`."""
        case, operation = place
        if case not in self.did:
            return False
        is_last = operation == self.planned[case]
        was_there = is_last if leaks else bool(self.counted.get(place)) or place == self.at
        return was_there and (after is None or self._order(after) < self._order(place))

    def between(self, first: int, last: int) -> tuple[int, ...]:
        """Return the cases from `first` to `last`; () if the program did not begin `first`, or did not end `last`."""
        if first not in self.did or last not in self.ended:
            return ()
        return tuple(self.begun[self.begun.index(first) : self.begun.index(last) + 1])

    def _order(self, place: Place) -> Place:
        return self.begun.index(place[0]), place[1]

    def take(self, frame: HarnessFrame) -> None:
        """Process one more frame; frames are passed in the order in which they were sent."""
        running = self._running
        if frame.kind == FrameKind.BEGIN and running is None:
            coming = list(self.planned)[len(self.begun) :][:1]
            if coming == [frame.case]:
                self.begun.append(frame.case)
                self.did[frame.case] = []
                self._running = frame.case
        if running is None or frame.case != running:
            return
        did = self.did[running]
        if frame.kind == FrameKind.END:
            self.ended.add(running)
            self.left[running] = did[-1][-1] if len(did) == self.planned[running] else frame.live
            self._running = None
        elif (
            frame.kind == FrameKind.STEP
            and frame.operation == len(did) < self.planned[running]
            and len(frame.body) == _COUNT.size  # the harness sends no other body
        ):
            self.counted[running, len(did)] = max(0, _COUNT.unpack(frame.body)[0])
            did.append((frame.allocations, frame.frees, frame.live))


def followed(frames: Iterable[HarnessFrame], planned: Mapping[int, int], token: int) -> RunProgress:
    """Return the progress of a program that was to run these cases."""
    course = RunProgress(planned=planned, token=token)
    for frame in frames:
        course.take(frame)
    return course


MOST_XML = 4_000_000
"""The most bytes of a document; the largest document of any sample has 440,000."""

_MOST_PIECE = 65_536
"""The most bytes of one error; no sample has one of more than 4,200."""

_MOST_ERRORS = 1000
"""The most errors of one process; no sample has more than 80."""

_MOST_PIECES = 50_000
"""The most errors and messages; no sample has more than 3,900."""

_MOST_STACKS, _MOST_FRAMES = 3, 32
"""The most stacks of an error, and frames of each stack."""

_MOST_FORBIDDEN = 16
"""The most forbidden ranges of one operation; harness.c reports no more."""

_LEAK, _UNSET, _STORE = "Leak", "Uninit", "InvalidWrite"
"""Kinds of errors, or beginnings of kinds: lost memory, values that were never set, stores outside of memory."""
_OF_FREED = {"FreedRead": "reads memory that was freed", "FreedWrite": "writes to memory that was freed"}
_EXPLAIN_STATE = frozenset(
    {"InvalidRead", "InvalidWrite", "InvalidFree", "FreedRead", "FreedWrite", "UninitCondition", "UninitValue"}
)
"""Kinds of errors that probably caused a wrong state of the same call."""

_MOST_NAMED = 2000
_VALGRINDS_OWN = "vgpreload_"
"""The beginning of the name of the library that has Valgrind's malloc, which libc itself calls."""
_ERROR, _MESSAGE, _FATAL = b"error", b"clientmsg", b"fatal_signal"
_WORDS = re.compile(r"pkv (errors|leaks|unfreed|forbidden|hang) ([0-9a-f]{1,16}) ([0-9a-f]{1,16}) ([0-9a-f]{1,16})")
_ADDRESS = re.compile(r"Address 0x([0-9A-Fa-f]{1,16})")
_DIGITS = 20
_MOST_LINE = 10_000_000

Stack = tuple[int, ...]
LookUp = Callable[[Sequence[Stack]], Mapping[Stack, tuple[SourceLine, ...]]]
"""Returns the student's lines on stacks of addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """The content of an XML document of Valgrind."""

    errors: tuple[MemoryFault, ...]
    where: tuple[SourceLine, ...] = ()
    """The student's lines on the stack of a program that hung: the grader asks such a program where it is."""
    unfreed: tuple[Unfreed, ...] = ()
    unread: str = ""
    """Why part of the document was not read, in words that fit after "Valgrind's report"; "" if all was read."""
    fatal_at: int = 0
    """The address in the report of the signal that ended the program; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class _Error:
    kind: str
    message: str
    beside: str
    """Valgrind's sentence about the memory."""
    stacks: tuple[Stack, ...]
    lines: tuple[tuple[SourceLine, ...], ...]
    """The student's lines on each of the stacks."""
    blocks: int
    """For a leak: the number of the student's allocations that were never freed, without those of libc."""


_NOTHING_LISTED = Unfreed(cases=(), unreported=0, by_function={})


@dataclass(slots=True)
class _Reading:
    """The state of reading: errors wait for the next message, which says where they belong."""

    course: RunProgress
    source_name: str
    waiting: list[_Error] = field(default_factory=list)
    forbidden: list[tuple[int, int]] = field(default_factory=list)
    placed: list[tuple[Place, _Error, bool]] = field(default_factory=list)
    after: Place | None = None
    where: tuple[SourceLine, ...] = ()
    unfreed: list[Unfreed] = field(default_factory=list)
    fatal_at: int = 0
    listed: Unfreed = _NOTHING_LISTED
    """The last list of unfreed memory: later lists contain it too, as long as they begin with the same case."""

    def message(self, element: ET.Element) -> None:
        """Process a client message of the harness."""
        words = _WORDS.search(element.findtext("text") or "")
        if words is None or int(words[2], 16) != self.course.token:
            return
        numbers = int(words[3], 16), int(words[4], 16)
        if words[1] == "forbidden":
            if len(self.forbidden) < _MOST_FORBIDDEN:
                self.forbidden.append(numbers)
        elif words[1] == "unfreed":
            self.list_unfreed(self.course.between(numbers[1], numbers[0]))
        elif words[1] == "hang":
            self.where = next((tuple(_lines(stack, self.source_name)) for stack in element.iter("stack")), ())
        elif self.course.fits(numbers, after=self.after, leaks=words[1] == "leaks"):
            self.place(numbers)
            self.after = numbers

    def list_unfreed(self, cases: tuple[int, ...]) -> None:
        """Compare the waiting leaks, which are all leaks of these cases, with what the harness reported as left."""
        before = self.listed
        if before.cases[:1] != cases[:1]:
            before = _NOTHING_LISTED
        if len(cases) <= len(before.cases):
            return
        leaks = [error for error in self.waiting if error.kind.startswith(_LEAK)]
        by_function: Counter[str] = Counter()
        for leak in leaks:
            by_function[leak.lines[0][-1].function if any(leak.lines[:1]) else ""] += leak.blocks
        unreported = by_function.total() - sum(self.course.left[case] for case in cases)
        self.unfreed.append(
            Unfreed(
                cases=cases[len(before.cases) :],
                unreported=max(0, unreported - before.unreported),
                by_function=by_function - Counter(before.by_function),
            )
        )
        self.listed = Unfreed(cases=cases, unreported=unreported, by_function=by_function)
        self.waiting = [error for error in self.waiting if not error.kind.startswith(_LEAK)]

    def place(self, place: Place) -> None:
        """Assign the waiting errors to this place."""
        self.placed += [(place, error, _is_breach(error, self.forbidden)) for error in self.waiting]
        self.waiting.clear()
        self.forbidden.clear()


def read(
    document: bytes, course: RunProgress, source_name: str, look_up: LookUp, *, optional: OptionalStages
) -> ReadReport:
    """Return each error with its place: errors after the last message belong where the process died.

    Where gcc inlined a function of a system header, Valgrind names the header's line. For a line of an inlined function
    it names the surrounding function. `look_up` knows the right line and function. A function's name costs no point, so
    `optional` runs the search for it. If Valgrind gives no line of the student's, the search decides whether the error
    is the student's, so exceptions of that search are not caught.
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
        elif kind == _FATAL:
            reading.fatal_at = _number(element.findtext("siaddr"), 16)
        elif len(reading.placed) + len(reading.waiting) < _MOST_ERRORS:
            reading.waiting.append(_error(element, source_name))
        else:
            unread = f"has more than {_MOST_ERRORS} errors"
            break
    if not (unread or reading.placed or reading.waiting) and any(course.counted.values()):
        unread = "has none of the errors that were counted"  # each of them is printed the first time
    if not unread and course.through and not (reading.listed.cases and reading.listed.cases[-1] == course.at[0]):
        unread = "lacks the list of memory that was never freed"
    # a case that was cut off could not free its memory: leaks that Valgrind reports at the end do not count
    reading.waiting = [error for error in reading.waiting if not error.kind.startswith(_LEAK)]
    reading.forbidden.clear()
    reading.place(course.at)
    faults = list(_faults(reading.placed, look_up, optional))
    attributed = [fault for fault in faults if fault.lines or fault.auxiliary]  # without a line it is not the student's
    if not any(_costs(fault) for fault in attributed):  # a file may hide its lines: use errors of the student's calls
        attributed += [fault for fault in faults if _costs(fault) and course.counted.get((fault.case, fault.operation))]
    return ReadReport(
        errors=tuple(attributed),
        where=reading.where,
        unfreed=tuple(reading.unfreed),
        unread=unread,
        fatal_at=reading.fatal_at,
    )


def _costs(fault: MemoryFault) -> bool:
    return not (fault.breach or fault.leak)


def _pieces(document: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the elements to read, in their order. An element that began earlier and never ended is skipped."""
    ends = {kind: document.find(b"</%s>" % kind) for kind in (_ERROR, _MESSAGE, _FATAL)}
    start = 0
    while remaining := [(end, kind) for kind, end in ends.items() if end >= 0]:
        end, kind = min(remaining)
        behind = end + len(b"</%s>" % kind)
        opening = document.rfind(b"<%s>" % kind, start, end)
        if opening >= 0:
            yield kind, document[opening:behind]
        start = behind
        ends[kind] = document.find(b"</%s>" % kind, start)


def _error(element: ET.Element, source_name: str) -> _Error:
    stacks = list(islice(element.iter("stack"), _MOST_STACKS))
    allocator = stacks[0].findtext("frame/obj") if stacks else None
    by_harness = allocator is not None and not Path(allocator).name.startswith(_VALGRINDS_OWN)
    return _Error(
        kind=element.findtext("kind") or "",
        message=element.findtext("what") or element.findtext("xwhat/text") or "",
        beside=element.findtext("auxwhat") or "",
        stacks=tuple(tuple(_addresses(stack)) for stack in stacks),
        lines=tuple(tuple(_lines(stack, source_name)) for stack in stacks),
        blocks=_number(element.findtext("xwhat/leakedblocks"), 10) if by_harness else 0,
    )


def _faults(
    placed: Sequence[tuple[Place, _Error, bool]], look_up: LookUp, optional: OptionalStages
) -> Iterator[MemoryFault]:
    """Yield the errors with the function of each line; if it is not known, with the function that Valgrind names."""
    if not placed:
        return
    addresses = dict.fromkeys(address for _, error, _ in placed for stack in error.stacks for address in stack)
    everything = tuple(islice(addresses, _MOST_NAMED))
    unknown = [stack for _, error, _ in placed if not any(error.lines) for stack in error.stacks]
    named = optional.run(OptionalStage.LINES, lambda: look_up([everything]), otherwise={})
    lines_by_stack = look_up(unknown) if unknown else {}
    names = {line.line: line.function for line in named.get(everything, ())}
    for (case, operation), error, breach in placed:
        lines = [
            tuple(replace(line, function=names.get(line.line, line.function)) for line in stack_lines)
            for stack_lines in error.lines
        ]
        if not any(lines):
            lines = [lines_by_stack.get(stack, ()) for stack in error.stacks]
        freed, leak = error.beside.endswith("free'd"), error.kind.startswith(_LEAK)
        unset = error.kind.startswith(_UNSET)
        # Memcheck has one kind for freed memory and for memory that was never allocated
        symptom = "leak" if leak else error.kind.replace("Invalid", "Freed") if freed else error.kind
        allocated = "the value comes from memory allocated" if unset else "the memory was allocated"
        message = "memory that was allocated here is never freed" if leak else _OF_FREED.get(symptom, error.message)
        yield MemoryFault(
            case=case,
            operation=operation,
            kind="leak" if leak else error.kind,
            symptom=symptom,
            message=message,
            lines=lines[0] if lines else (),
            auxiliary=lines[1] if len(lines) > 1 else (),
            origin="it was freed" if freed else allocated,
            leak=leak,
            unset=unset,
            stores=error.kind == _STORE,
            breach=breach,
            explains_state=symptom in _EXPLAIN_STATE,
        )


def _is_breach(error: _Error, forbidden: Sequence[tuple[int, int]]) -> bool:
    address = _ADDRESS.match(error.beside)
    return address is not None and any(start <= int(address[1], 16) < end for start, end in forbidden)


def _addresses(stack: ET.Element) -> Iterator[int]:
    for frame in islice(stack.iter("frame"), _MOST_FRAMES):
        yield _number(frame.findtext("ip"), 16)


def _number(text: str | None, base: int) -> int:
    """Return the number in `text`, or 0 for other text: a program may have written into the channel."""
    try:
        number = int((text or "0")[:_DIGITS], base)
    except ValueError:
        return 0
    return number if 0 <= number < 1 << 64 else 0


def _lines(stack: ET.Element, source_name: str) -> Iterator[SourceLine]:
    for frame in islice(stack.iter("frame"), _MOST_FRAMES):
        if frame.findtext("file") == source_name:
            line = _number(frame.findtext("line"), 10)
            function = frame.findtext("fn") or ""
            yield SourceLine(file=source_name, line=line if line < _MOST_LINE else 0, function=function)
