"""Valgrind over the same cases: one process for all of them, its XML through a pipe, each error with its operation.

Errors and leaks come in the order in which they happened, and the harness puts a client message behind those of each
operation; so every one of them belongs to a case, an operation and lines of the student's file. The document may end
anywhere (a crash, a hostile program), therefore it is read piece by piece.
"""

from __future__ import annotations

import re
import secrets
import signal
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from xml.etree import ElementTree as ET

from grader.errors import DriverError
from grader.frames import Frames, Kind
from grader.grammar import Case
from grader.lab import Program
from grader.plan import plan
from grader.process import Limits
from grader.sandbox import RUN_LIMITS, Workspace
from grader.verdict import SourceLine
from reference.operation import Trace

__all__ = ["LEAK", "Checked", "MemoryFault", "memcheck"]

LEAK = "Leak"
"""Kinds of Valgrind that begin so are lost memory."""

_MOST_PROCESSES = 3
_EXIT_NO_ROOM = 101  # harness.c: a case needs more memory than Valgrind was told of; it says nothing about the case
_WALL_SECONDS = 60.0
_CPU_SECONDS = 15  # for programs that are far too slow; a right one needs half a second
_SILENT_SECONDS = 0.3  # between two operations; right ones need a few milliseconds
_START_SECONDS = 8.0  # before the first case: Valgrind's own affair
_MOST_OF = 0.7  # of its limit: the kernel counts by ticks and is not exact
_SLOWER = 1000  # 50 for Valgrind, 20 for an operation that is slower than those around it
_PIECE = re.compile(rb"<(error|clientmsg)>.*?</\1>", re.DOTALL)
_ANSWER = re.compile(rb"<clientmsg>(?:(?!</clientmsg>).)*pkv hang.*?(<stack>.*?</stack>)", re.DOTALL)
_MARKER = re.compile(r"pkv (errors|leaks) (\d+) (\d+) (\d+)")
_COMMAND = (
    "valgrind",
    "--tool=memcheck",
    "--xml=yes",
    "--error-limit=no",
    "--redzone-size=128",
    "--leak-check=no",  # at the end; after each case that has something left the harness asks for one
    "--show-leak-kinds=all",
    "--num-callers=24",
    "--read-inline-info=no",  # a quarter of the start-up; lines are right without it, only inlined names are lost
    "--vgdb=no",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFault:
    """One error of Valgrind. `operation` counts from 0; for a leak it is the number of operations."""

    case: int
    operation: int
    kind: str
    message: str
    lines: tuple[SourceLine, ...]
    auxiliary: tuple[SourceLine, ...]
    """Where the memory was allocated or freed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What Valgrind saw."""

    errors: tuple[MemoryFault, ...]
    counted: dict[tuple[int, int], int]
    """How many errors it counted in each (case, operation), repeated ones too, which it does not print again."""
    stopped: dict[int, int]
    """Cases that ran to their end natively and not under Valgrind, with the operation (from 0) they stopped in."""
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]]
    """Cases that do so twice without coming to an end, with the operation and the lines they were in."""
    unchecked: tuple[int, ...]
    """Cases that were not seen to their end because the time or the processes were used up; that says nothing."""
    processes: int
    cpu_seconds: float


def memcheck(
    work: Workspace,
    program: Program,
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    natively: Mapping[int, float],
    codes: dict[str, int],
    settings: Callable[[Trace], tuple[int, ...]],
) -> Checked:
    """Run the cases with these numbers under Valgrind. If the process dies the rest goes on in another one.

    `natively` is the CPU time that each of them needs without Valgrind. A case that stops to say anything is run
    again, alone, with twice the time, before it is said to hang.
    """
    runs: list[_Run] = []
    stopped: dict[int, int] = {}
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]] = {}
    left, suspect = list(numbers), None
    slowest = max((natively[number] / len(cases[number].trace.operations) for number in numbers), default=0.0)
    patience = max(_SILENT_SECONDS, _SLOWER * slowest)
    while (left or suspect is not None) and len(runs) < _MOST_PROCESSES and not work.budget.empty:
        chosen = left if suspect is None else [suspect]
        feed = partial(plan, cases, chosen, memcheck=True, codes=codes, settings=settings)
        run = _run(work, program, feed, patience if suspect is None else 2 * patience)
        if not run.begun:
            raise DriverError(f"Valgrind did not start the program: {run.said or 'it says nothing'}")
        left = [number for number in left if number not in run.begun]
        cut_off = run.begun[-1] if run.begun[-1] not in run.ended else None
        if suspect is not None:
            runs = [earlier.without(suspect) for earlier in runs]
        runs.append(run)
        if run.out_of_time:
            break
        if run.hangs and cut_off is not None and suspect is None:
            suspect = cut_off
            continue
        if run.hangs and cut_off is not None:
            hung[cut_off] = run.at[1], run.where
        elif cut_off is not None and run.exit_code != _EXIT_NO_ROOM:
            stopped[cut_off] = run.at[1]
        suspect = None
    seen = {number for run in runs for number in run.ended} | stopped.keys() | hung.keys()
    return Checked(
        errors=tuple(error for run in runs for error in run.errors),
        counted={place: count for run in runs for place, count in run.counted.items()},
        stopped=stopped,
        hung=hung,
        unchecked=tuple(number for number in numbers if number not in seen),
        processes=len(runs),
        cpu_seconds=sum(run.cpu_seconds for run in runs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What one process of Valgrind said."""

    begun: tuple[int, ...]
    ended: frozenset[int]
    at: tuple[int, int]
    """Case and operation that it came to."""
    errors: tuple[MemoryFault, ...]
    counted: dict[tuple[int, int], int]
    hangs: bool
    where: tuple[SourceLine, ...]
    """The student's lines where it was when it was asked."""
    out_of_time: bool
    """Ended for what it used in all, or because the machine is busy: nobody's fault in particular."""
    exit_code: int | None
    said: str
    cpu_seconds: float

    def without(self, case: int) -> _Run:
        """The same, but for what belongs to that case."""
        errors = tuple(error for error in self.errors if error.case != case)
        counted = {place: count for place, count in self.counted.items() if place[0] != case}
        return replace(self, errors=errors, counted=counted)


def _run(work: Workspace, program: Program, feed: Callable[..., bytes], patience: float) -> _Run:
    """One process, ended when it is silent for longer than `patience`."""
    token = secrets.randbits(64)
    cpu_limit = work.budget.cpu_limit(_CPU_SECONDS)
    limits = Limits(
        wall_seconds=_WALL_SECONDS,
        cpu_seconds=cpu_limit,
        file_size=RUN_LIMITS.file_size,
        processes=RUN_LIMITS.processes,
        open_files=None,
        silent_seconds=patience,
        silent_start_seconds=_START_SECONDS,
    )
    done = work.run(
        lambda ends: [*_COMMAND, f"--xml-fd={ends[2]}", f"./{program.place(work, checked=True)}", *map(str, ends[:2])],
        limits=limits,
        feeds=[feed(token=token)],
        channels=2,
    )
    begun: list[int] = []
    ended: set[int] = set()
    counted: dict[tuple[int, int], int] = {}
    at = (-1, 0)
    for frame in Frames(done.channels[0], token):
        if frame.kind == Kind.BEGIN:
            begun.append(frame.case)
            at = (frame.case, 0)
        elif frame.kind == Kind.END:
            ended.add(frame.case)
        elif frame.kind == Kind.STEP and len(frame.body) == 4:
            (count,) = struct.unpack("<i", frame.body)
            at = (frame.case, frame.operation + 1)
            if count:
                counted[frame.case, frame.operation] = count
    by_limit = done.signal in (signal.SIGKILL, signal.SIGXCPU) and done.cpu_seconds > _MOST_OF * cpu_limit
    return _Run(
        begun=tuple(begun),
        ended=frozenset(ended),
        at=at,
        errors=tuple(_attributed(done.channels[1], at, program.source_name)),
        counted=counted,
        hangs=done.silent,
        where=_asked(done.channels[1], program.source_name),
        out_of_time=(done.timed_out and not done.silent) or by_limit,
        exit_code=done.exit_code,
        said=done.stderr.decode(errors="replace").strip()[-500:],
        cpu_seconds=done.cpu_seconds,
    )


def _asked(document: bytes, source_name: str) -> tuple[SourceLine, ...]:
    """The student's lines on the stack of a program that was asked where it is."""
    found = _ANSWER.search(document)
    try:
        return tuple(_lines(ET.fromstring(found.group(1)), source_name)) if found else ()
    except ET.ParseError:
        return ()


def _attributed(document: bytes, last: tuple[int, int], source_name: str) -> Iterator[MemoryFault]:
    """Errors wait for the next marker, which says where they belong; after the last one, where the process died."""
    waiting: list[ET.Element] = []
    for piece in _PIECE.finditer(document):
        try:
            element = ET.fromstring(piece.group(0))
        except ET.ParseError:
            continue
        if element.tag == "error":
            waiting.append(element)
            continue
        marker = _MARKER.search(element.findtext("text") or "")
        if marker:
            case, operation = int(marker.group(2)), int(marker.group(3))
            yield from _errors(waiting, case, operation, source_name)
            waiting = []
    # what was cut off could not free any more: its leaks, which Valgrind tells of at the end, are none
    cut_off = [element for element in waiting if not (element.findtext("kind") or "").startswith(LEAK)]
    yield from _errors(cut_off, *last, source_name)


def _errors(elements: list[ET.Element], case: int, operation: int, source_name: str) -> Iterator[MemoryFault]:
    for element in elements:
        stacks = [tuple(_lines(stack, source_name)) for stack in element.iter("stack")]
        if any(stacks):  # without a line of the student's it is none of theirs
            yield MemoryFault(
                case=case,
                operation=operation,
                kind=element.findtext("kind") or "",
                message=element.findtext("what") or element.findtext("xwhat/text") or "",
                lines=stacks[0],
                auxiliary=stacks[1] if len(stacks) > 1 else (),
            )


def _lines(stack: ET.Element, source_name: str) -> Iterator[SourceLine]:
    for frame in stack.iter("frame"):
        if frame.findtext("file") == source_name:
            yield SourceLine(
                file=source_name, line=int(frame.findtext("line") or 0), function=frame.findtext("fn") or ""
            )
