"""Valgrind over the same cases: one process for all of them, its XML through a pipe, each error with its operation.

Errors and leaks come in the order in which they happened, and the harness puts a client message behind those of each
operation; so every one of them belongs to a case, an operation and lines of the student's file. The document may end
anywhere (a crash, a hostile program), therefore it is read piece by piece.
"""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from grader.errors import DriverError
from grader.grammar import Case
from grader.lab import Program
from grader.plan import plan
from grader.process import Limits
from grader.replay import Frames, Kind
from grader.sandbox import RUN_LIMITS, Workspace
from grader.verdict import SourceLine
from reference.operation import Trace

__all__ = ["LEAK", "Checked", "MemoryFault", "memcheck"]

LEAK = "Leak"
"""Kinds of Valgrind that begin so are lost memory."""

_MOST_PROCESSES = 3
_EXIT_NO_ROOM = 101  # harness.c: a case needs more memory than Valgrind was told of; it says nothing about the case
_WALL_SECONDS = 60.0
_CPU_SECONDS = 15  # a class of cases needs half a second
_PIECE = re.compile(rb"<(error|clientmsg)>.*?</\1>", re.DOTALL)
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
    processes: int
    cpu_seconds: float


def memcheck(
    work: Workspace,
    program: Program,
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    codes: dict[str, int],
    settings: Callable[[Trace], tuple[int, ...]],
) -> Checked:
    """Run the cases with these numbers under Valgrind. If the process dies the rest goes on in another one."""
    errors: list[MemoryFault] = []
    counted: dict[tuple[int, int], int] = {}
    stopped: dict[int, int] = {}
    left = list(numbers)
    processes, spent = 0, 0.0
    while left and processes < _MOST_PROCESSES:
        processes += 1
        token = secrets.randbits(64)
        feed = plan(cases, left, token=token, memcheck=True, codes=codes, settings=settings)
        done = work.run(
            lambda ends: [
                *_COMMAND,
                f"--xml-fd={ends[2]}",
                f"./{program.place(work, checked=True)}",
                *map(str, ends[:2]),
            ],
            limits=Limits(
                wall_seconds=_WALL_SECONDS,
                cpu_seconds=_CPU_SECONDS,
                file_size=RUN_LIMITS.file_size,
                processes=RUN_LIMITS.processes,
                open_files=None,
            ),
            feeds=[feed],
            channels=2,
        )
        spent += done.cpu_seconds
        ended, begun = set(), []
        at = (left[0], 0)
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
        if not begun:
            reason = done.stderr.decode(errors="replace").strip()[-500:]
            raise DriverError(f"Valgrind did not start the program: {reason or 'it says nothing'}")
        errors += _attributed(done.channels[1], at, program.source_name)
        if done.exit_code != _EXIT_NO_ROOM:
            stopped |= {number: at[1] for number in begun if number not in ended}
        left = [number for number in left if number not in begun]
    return Checked(errors=tuple(errors), counted=counted, stopped=stopped, processes=processes, cpu_seconds=spent)


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
