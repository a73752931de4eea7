"""One process of Valgrind over some cases: what it said, and how it ended.

Where Valgrind does not begin, it is run again without the program's debug information. A program that it has no room
for (static zeros above some 1.5 GB) counts as not seen by Valgrind, which the report says and which costs nothing.
"""

from __future__ import annotations

import math
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from grader.assignment.lab import Program
from grader.core.verdict import SourceLine
from grader.runtime.memory_faults import MemoryFault
from grader.runtime.native.symbolize import source_lines
from grader.runtime.native.valgrind.divergence import Heap
from grader.runtime.native.valgrind.progress import followed
from grader.runtime.native.valgrind.xml import Stack, read
from grader.runtime.native.wire import Frames
from grader.runtime.source_lines import Place
from grader.system.process import Completed
from grader.system.sandbox import LINK_LIMITS, RUN_LIMITS, Limits, Workspace
from grader.system.watchdog import MOST_MEMORY, MOST_PROCESSES

__all__ = ["Run", "run_once"]

_WALL_SECONDS = 60.0
_START_SECONDS, _BARE_START_SECONDS = 1.5, 8.0
"""Before the first case, for which Valgrind needs 0.15 s: with the program's debug information and without it."""
_MOST_OF = 0.7  # of its limit: the kernel counts by ticks and is not exact
_EXIT_BY_STUDENT, _LAST_WORD = 98, b"</valgrindoutput>"
_HARNESS_EXITS = (0, 97, _EXIT_BY_STUDENT, 99, 100)
"""After these Valgrind always ends its report; inside.h has their names."""

_COMMAND = (
    "valgrind",
    "--tool=memcheck",
    "--xml=yes",
    "--error-limit=no",
    "--redzone-size=128",
    "--leak-check=no",  # at the end; after each case that has something left the harness asks for one
    "--show-leak-kinds=all",
    "--num-callers=24",
    "--read-inline-info=no",  # a quarter of the start-up; valgrind_xml.py knows the names that are lost
    "--vgdb=no",
    "--sanity-level=0",  # its own tables, which it would search twice, are its developers' business
    "--demangle=no",  # C has no such names, and some grow to gigabytes
    "--command-line-only=yes",  # no options from a file that the program may have left for the next run
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one process of Valgrind said."""

    begun: tuple[int, ...]
    ended: frozenset[int]
    at: Place
    """Case and operation that it came to."""
    errors: tuple[MemoryFault, ...]
    counted: dict[Place, int]
    hangs: bool
    where: tuple[SourceLine, ...]
    """The student's lines where it was when it was asked."""
    out_of_time: bool
    """Ended because the machine is busy: nobody's fault in particular."""
    by_limit: bool
    """Ended for the time that it used in all."""
    sleeps: bool
    """Was that less CPU time than it was given, the rest asleep? No program needs to sleep."""
    did: dict[int, list[Heap]]
    """By case what each operation did to the heap."""
    said: str
    cpu_seconds: float
    cut: bool
    unexplained: bool
    unread: str
    """Why not all of its report could be read; see `valgrind_xml.Said`."""
    too_slow: bool = False
    """Was that far more than Valgrind needs for what its cases do natively?"""

    @property
    def gives_up(self) -> bool:
        """Does no further process help?"""
        return not self.begun or self.out_of_time or self.by_limit

    def without(self, case: int) -> Run:
        """The same, but for what belongs to that case."""
        errors = tuple(error for error in self.errors if error.case != case)
        counted = {place: count for place, count in self.counted.items() if place[0] != case}
        did = {number: steps for number, steps in self.did.items() if number != case}
        return replace(self, errors=errors, counted=counted, did=did)


def run_once(
    work: Workspace,
    program: Program,
    feed: Callable[..., bytes],
    patience: float,
    *,
    planned: Mapping[int, int],
    cpu_seconds: float,
    origins: bool,
    bare: bool = False,
) -> Run:
    """One process for the cases of `planned`, ended when it is silent for longer than `patience`; see `_placed`."""
    token = secrets.randbits(64)
    cpu_limit = work.budget.cpu_limit(math.ceil(cpu_seconds))
    done = work.run(
        lambda ends: [
            *_COMMAND,
            *(["--track-origins=yes"] if origins else []),
            f"--xml-fd={ends[2]}",
            f"./{_placed(work, program, bare=bare)}",
            *map(str, ends[:2]),
        ],
        limits=_limits(patience, cpu_limit, max(0.1, min(cpu_limit, work.budget.cpu)), bare=bare),
        feeds=[feed(token=token)],
        channels=2,
    )
    reports, document = done.channels
    frames = Frames(reports, token, sum(planned.values()))
    course = followed(frames, planned, token)

    def look_up(stacks: Sequence[Stack]) -> Mapping[Stack, tuple[SourceLine, ...]]:
        return source_lines(work, program, stacks, checked=True)

    said = read(document, course, program.source_name, look_up)
    worked = done.cpu_seconds > _MOST_OF * cpu_limit
    by_limit = done.slow or (done.signal in (signal.SIGKILL, signal.SIGXCPU) and worked)
    cut = not (by_limit or said.unread) and _is_cut(done, document, through=course.through)
    ended = by_limit or done.timed_out or done.flooded or done.large
    explained = ended or cut or done.exit_code == _EXIT_BY_STUDENT
    too_much = "comes with more messages than any program needs" if done.flooded or frames.too_many else ""
    most = f"more than {MOST_MEMORY >> 20} MB of memory or {MOST_PROCESSES} processes"
    too_large = f"was cut off, for the program takes {most}" if done.large else ""
    return Run(
        begun=tuple(course.begun),
        ended=frozenset(course.ended),
        at=course.at,
        errors=said.errors,
        counted={place: count for place, count in course.counted.items() if count},
        hangs=done.silent,
        where=said.where,
        out_of_time=done.timed_out and not done.silent,
        by_limit=by_limit,
        sleeps=done.slow and not worked,
        did=course.did,
        said=done.stderr.decode(errors="replace").strip()[-500:],
        cpu_seconds=done.cpu_seconds,
        unexplained=not (explained or course.ended.issuperset(course.begun)),
        cut=cut,
        unread=too_large or said.unread or too_much or ("was cut off before its end" if cut else ""),
    )


def _is_cut(done: Completed, document: bytes, *, through: bool) -> bool:
    """Does the report lack its end, although the program came to its own and we ended nothing?"""
    ours = done.timed_out or done.flooded or done.large
    return (through or done.exit_code in _HARNESS_EXITS) and not ours and not document.rstrip().endswith(_LAST_WORD)


def _placed(work: Workspace, program: Program, *, bare: bool) -> str:
    """The program's name. `bare`: without debug information, by which Valgrind may fail; lines are looked up anyway."""
    name = program.place(work, checked=True)
    if not bare:
        return name
    bare_name = f"bare{secrets.token_hex(8)}"  # what ran here before may have left something under a name that it knew
    work.run(["objcopy", "--strip-debug", name, bare_name], limits=LINK_LIMITS)
    return bare_name


def _limits(patience: float, cpu_seconds: int, own_seconds: float, *, bare: bool) -> Limits:
    return replace(
        RUN_LIMITS,
        wall_seconds=_WALL_SECONDS,
        cpu_seconds=cpu_seconds,
        address_space=None,
        open_files=None,
        own_seconds=own_seconds,
        silent_seconds=patience,
        silent_start_seconds=_BARE_START_SECONDS if bare else _START_SECONDS,
    )
