"""Valgrind over the same cases: one process for all of them, its XML through a pipe, each error with its operation.

Errors and leaks come in the order in which they happened, and the harness puts a client message behind those of each
operation; so every one of them belongs to a case, an operation and lines of the student's file (valgrind_xml.py).

A call's contract says which bytes of a lab's shared memory it may touch (`Model.allowed`); see grader.breaches.
"""

from __future__ import annotations

import math
import secrets
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from grader.breaches import LEAK, Contract, MemoryFault, Place, Told
from grader.frames import Frames, Kind
from grader.grammar import Case
from grader.lab import Program
from grader.otherwise import Heap, enough, strayed
from grader.plan import plan
from grader.replay import PlayedStep
from grader.sandbox import RUN_LIMITS, Limits, Workspace
from grader.symbols import source_lines
from grader.valgrind_xml import asked, attributed
from grader.verdict import SourceLine
from reference.model import Span
from reference.operation import Trace

__all__ = ["LEAK", "MOST_PROCESSES", "Checked", "MemoryFault", "memcheck"]

MOST_PROCESSES = 3
"""So many for one submission, whatever it does."""

_WALL_SECONDS = 60.0
_CPU_SECONDS = 15  # for programs that are far too slow; a right one needs half a second
_SILENT_SECONDS = 0.3  # between two operations; right ones need a few milliseconds
_START_SECONDS = 8.0  # before the first case: Valgrind's own affair
_MOST_OF = 0.7  # of its limit: the kernel counts by ticks and is not exact
_SLOWER = 1000  # 50 for Valgrind, 20 for an operation that is slower than those around it
_EXIT_BY_STUDENT, _LAST_WORD = 98, b"</valgrindoutput>"
_COUNT = struct.Struct("<i")
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
    "--command-line-only=yes",  # no options from a file that the program may have left for the next run
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What Valgrind saw."""

    errors: tuple[MemoryFault, ...]
    counted: dict[Place, int]
    """How many errors it counted in each operation, repeated ones too, which it does not print again."""
    stopped: dict[int, int]
    """Cases that ran to their end natively and not under Valgrind, with the operation (from 0) they stopped in."""
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]]
    """Cases that do so twice without coming to an end, or need far more time than Valgrind needs for what they do
    natively: with the operation and the lines they were in."""
    strayed: dict[int, int]
    """Cases that allocate and free otherwise than natively although nothing was wrong, with the first operation."""
    unchecked: tuple[int, ...]
    """Cases that were not seen to their end because the time or the processes were used up."""
    processes: int
    cpu_seconds: float
    breaches: tuple[MemoryFault, ...] = ()
    stores: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that stored into shared memory which the operation may not touch, repeated ones too."""
    copies: dict[Place, tuple[SourceLine, ...]] = field(default_factory=dict)
    """The lines that read what the operation may only read; of a few cases with a difference."""
    cut: bool = False  # did it stop in the middle of its report, although all cases were through?
    unexplained: bool = False  # or in the middle of a case, and neither we nor the harness ended it?
    refused: str = ""  # what it said when it did not begin with any case

    @property
    def odd(self) -> str:
        """What somebody who ended Valgrind could have done as well; "" when nothing is."""
        middle = "of its report" if self.cut else "of a case" if self.unexplained else ""
        ended = f"Valgrind ended in the middle {middle}, and nobody says why" if middle else ""
        return f"Valgrind did not start the program: {self.refused}" if self.refused else ended

    @property
    def shunned(self) -> frozenset[int]:
        """Unchecked cases, where earlier ones stopped or hung under Valgrind only: whoever does that is not seen."""
        return frozenset(self.unchecked if self.stopped or self.hung else ())


def memcheck(
    work: Workspace,
    program: Program,
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    natively: Mapping[int, float],
    building: float,
    codes: dict[str, int],
    settings: Callable[[Trace], tuple[int, ...]],
    allowed: Mapping[int, Sequence[tuple[Span, ...]]] | None = None,
    steps: Mapping[int, Sequence[PlayedStep]] | None = None,
    strict: bool = False,
    origins: bool = False,
    most_processes: int = MOST_PROCESSES,
) -> Checked:
    """Run the cases with these numbers under Valgrind. If the process dies the rest goes on in another one.

    `natively` is the CPU time that each of them needs without Valgrind, `building` that of making the program, `steps`
    what it did natively: a program that is another one here hides something. A case that stops to say anything is run
    again, alone, with twice the time, before it is said to hang. `allowed` is the contract of the first operations of
    each case. `strict` forbids also what they may only read, so that a store there has its line; so has then a copy
    from there. `origins` finds out where unset values came from.
    """
    contracts = {number: Contract(cases[number], (allowed or {}).get(number, ()), strict=strict) for number in numbers}
    encoded = {number: contract.encoded() for number, contract in contracts.items()}
    slowest = max((natively[number] / len(cases[number].trace.operations) for number in numbers), default=0.0)
    patience = max(_SILENT_SECONDS, _SLOWER * slowest)

    def most(chosen: Sequence[int]) -> float:
        return enough((natively[number] for number in chosen), building)

    def run(chosen: Sequence[int], times: int) -> _Run:
        feed = partial(plan, cases, chosen, codes=codes, settings=settings, contracts=encoded, confined=work.confined)
        limit = min(_CPU_SECONDS, most(chosen))
        done = _run(work, program, feed, times * patience, cpu_seconds=limit, origins=origins)
        return replace(done, drags=done.by_limit and done.cpu_seconds > most(done.begun))

    runs, stopped, hung = _all_runs(run, numbers, lambda done: done < most_processes and not work.budget.empty)
    seen = {number for one in runs for number in one.ended} | stopped.keys() | hung.keys()
    errors = [error for one in runs for error in one.errors]
    counted = {place: count for one in runs for place, count in one.counted.items()}
    told = Told(contracts, errors, counted)
    return Checked(
        errors=tuple(error for error in errors if not error.breach),
        counted={place: count for place, count in counted.items() if not told.is_breach(place)},
        stopped=stopped,
        hung=hung,
        strayed=strayed(((run.did, run.ended) for run in runs), steps or {}, counted.keys()),
        unchecked=tuple(number for number in numbers if number not in seen),
        processes=len(runs),
        cpu_seconds=sum(one.cpu_seconds for one in runs),
        breaches=tuple(told.breaches),
        stores=told.lines(stores=True),
        copies=told.lines(stores=False) if strict else {},
        cut=any(run.cut for run in runs),
        unexplained=any(run.unexplained for run in runs),
        refused=next((run.said or "it says nothing" for run in runs if not run.begun), ""),
    )


def _all_runs(
    run_of: Callable[[Sequence[int], int], _Run], numbers: Sequence[int], may_go_on: Callable[[int], bool]
) -> tuple[list[_Run], dict[int, int], dict[int, tuple[int, tuple[SourceLine, ...]]]]:
    """Process after process, until every case was seen; besides, what stopped and what hangs, and where."""
    runs: list[_Run] = []
    stopped: dict[int, int] = {}
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]] = {}
    left, suspect = list(numbers), None
    while (left or suspect is not None) and may_go_on(len(runs)):
        run = run_of(left, 1) if suspect is None else run_of([suspect], 2)
        if not run.begun:
            runs.append(replace(run, errors=()))
            break
        left = [number for number in left if number not in run.begun]
        cut_off = run.begun[-1] if run.begun[-1] not in run.ended else None
        if suspect is not None:
            runs = [earlier.without(suspect) for earlier in runs]
        runs.append(run)
        if run.drags and cut_off is not None:
            hung[cut_off] = run.at[1], run.where
        if run.out_of_time or run.by_limit:
            break
        if run.hangs and cut_off is not None and suspect is None:
            suspect = cut_off
            continue
        if run.hangs and cut_off is not None:
            hung[cut_off] = run.at[1], run.where
        elif cut_off is not None and not run.no_room:
            stopped[cut_off] = run.at[1]
        suspect = None
    return runs, stopped, hung


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
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
    """Ended for the CPU time that it used in all."""
    did: dict[int, list[Heap]]
    """By case what each operation did to the heap."""
    no_room: bool
    """The last case needs more memory than Valgrind was told of, which says nothing about it."""
    said: str
    cpu_seconds: float
    cut: bool
    unexplained: bool
    drags: bool = False
    """Was that far more than Valgrind needs for what its cases do natively?"""

    def without(self, case: int) -> _Run:
        """The same, but for what belongs to that case."""
        errors = tuple(error for error in self.errors if error.case != case)
        counted = {place: count for place, count in self.counted.items() if place[0] != case}
        did = {number: steps for number, steps in self.did.items() if number != case}
        return replace(self, errors=errors, counted=counted, did=did)


def _run(
    work: Workspace,
    program: Program,
    feed: Callable[..., bytes],
    patience: float,
    *,
    cpu_seconds: float,
    origins: bool,
) -> _Run:
    """One process, ended when it is silent for longer than `patience`."""
    token = secrets.randbits(64)
    cpu_limit = work.budget.cpu_limit(math.ceil(cpu_seconds))
    done = work.run(
        lambda ends: [
            *_COMMAND,
            *(["--track-origins=yes"] if origins else []),
            f"--xml-fd={ends[2]}",
            f"./{program.place(work, checked=True)}",
            *map(str, ends[:2]),
        ],
        limits=_limits(patience, cpu_limit),
        feeds=[feed(token=token)],
        channels=2,
    )
    frames = list(Frames(done.channels[0], token))
    begun = tuple(frame.case for frame in frames if frame.kind == Kind.BEGIN)
    steps = [frame for frame in frames if frame.kind == Kind.STEP and len(frame.body) == _COUNT.size]
    counts = {(frame.case, frame.operation): _COUNT.unpack(frame.body)[0] for frame in steps}
    last = next((frame for frame in reversed(frames) if frame.kind in (Kind.BEGIN, Kind.STEP)), None)
    at = (last.case, last.operation + 1) if last is not None else (-1, 0)  # a case begins with operation -1
    did: dict[int, list[Heap]] = {}
    for frame in steps:
        did.setdefault(frame.case, []).append((frame.allocations, frame.frees, frame.live))

    def look_up(stack: tuple[int, ...]) -> tuple[SourceLine, ...]:
        return source_lines(work, program, [stack], checked=True)[stack]

    ended = frozenset(frame.case for frame in frames if frame.kind == Kind.END)
    no_room = any(frame.kind == Kind.NO_ROOM for frame in frames)
    by_limit = done.signal in (signal.SIGKILL, signal.SIGXCPU) and done.cpu_seconds > _MOST_OF * cpu_limit
    explained = by_limit or no_room or done.timed_out or done.exit_code == _EXIT_BY_STUDENT
    return _Run(
        begun=begun,
        ended=ended,
        at=at,
        errors=tuple(attributed(done.channels[1], at, program.source_name, look_up)),
        counted={place: count for place, count in counts.items() if count},
        hangs=done.silent,
        where=asked(done.channels[1], program.source_name),
        out_of_time=done.timed_out and not done.silent,
        by_limit=by_limit,
        did=did,
        no_room=no_room,
        said=done.stderr.decode(errors="replace").strip()[-500:],
        cpu_seconds=done.cpu_seconds,
        unexplained=not (explained or ended.issuperset(begun)),
        cut=any(frame.kind == Kind.DONE for frame in frames) and not done.channels[1].rstrip().endswith(_LAST_WORD),
    )


def _limits(patience: float, cpu_seconds: int) -> Limits:
    return replace(
        RUN_LIMITS,
        wall_seconds=_WALL_SECONDS,
        cpu_seconds=cpu_seconds,
        address_space=None,
        open_files=None,
        silent_seconds=patience,
        silent_start_seconds=_START_SECONDS,
    )
