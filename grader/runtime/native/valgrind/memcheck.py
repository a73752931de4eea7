"""Run the same cases under Valgrind: one process for the public and one for the hidden ones.

Valgrind's XML comes through a pipe. Errors and leaks come in the order in which they happened, and the harness puts a
client message after those of each operation. So each of them belongs to a case, an operation and lines of the student's
file (xml.py).

A call's contract says which bytes of a lab's shared memory it may touch (`Model.allowed`); see contract.py.

Valgrind's start costs more than all cases together, so they share a process. It looks for leaks in the first eight
cases of a process that lost something, which gives their lines; the harness's own table of allocations says for all of
them what was lost. Because a program can store into that table, Valgrind also lists after every few cases what was
never freed at all: there may not be more of it than the cases reported (`Unfreed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from grader.core.case import Case
from grader.core.model import Span
from grader.core.optional_stages import OptionalStages
from grader.core.verdict import SourceLine
from grader.runtime.native.driver import Driver
from grader.runtime.native.native_played import NativeStep
from grader.runtime.native.native_program import NativeProgram
from grader.runtime.native.plan import plan
from grader.runtime.native.valgrind.contract import Classified, Contract
from grader.runtime.native.valgrind.divergence import diverged, enough
from grader.runtime.native.valgrind.kinds import TOOL
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.runtime.native.valgrind.one_process import Run, run_once
from grader.runtime.runs import by_visibility
from grader.system.budget import Budget
from grader.system.sandbox import Workspace

MOST_PROCESSES = 4
"""The most processes for one submission, whatever it does."""

_MOST_TOGETHER = 3
"""The most processes for its public cases, and for its hidden cases."""

_SLOW_SECONDS = 0.03  # of a case natively; slower cases run last, so that they keep no other from being checked
_SLOWER = 1000  # 50 for Valgrind, 20 for an operation that is slower than those around it


def memcheck(
    work: Workspace,
    program: NativeProgram,
    cases: Sequence[Case],
    numbers: Sequence[int],
    *,
    natively: Mapping[int, float],
    building: float,
    driver: Driver,
    optional: OptionalStages,
    allowed: Mapping[int, Sequence[tuple[Span, ...]]] | None = None,
    steps: Mapping[int, Sequence[NativeStep]] | None = None,
    strict: bool = False,
    origins: bool = False,
    most_processes: int = MOST_PROCESSES,
) -> Checked:
    """Run the cases with these numbers under Valgrind. If a process dies, the rest goes on in another process.

    `natively` is the CPU time in seconds that each case needs without Valgrind, `building` that of making the program,
    `steps` what the program did natively, `allowed` the contract of each case's operations. A silent case is run again,
    alone, with twice the time, before it counts as hanging. `strict`: a store or copy has its line also where only
    reading is allowed. `origins`: find origins of unset values. `optional` runs what only names lines.
    """
    contracts = {number: Contract(cases[number], (allowed or {}).get(number, ()), strict=strict) for number in numbers}
    encoded = {number: contract.encoded() for number, contract in contracts.items()}
    parts = by_visibility(cases, sorted(numbers, key=lambda number: natively[number] > _SLOW_SECONDS))
    limits = work.budget.limits
    patience = _patience(cases, parts, natively, least=limits.checked_silent)
    once = _Starts(partial(run_once, work, program, origins=origins, optional=optional), work.budget)

    def most(part: Sequence[int]) -> float:
        return enough((natively[number] for number in part), building)

    def run_of(part: Sequence[int], times: int) -> Run:
        feed = partial(plan, cases, part, driver=driver, contracts=encoded, confined=work.confined)
        planned, limit = {i: len(cases[i].trace.operations) for i in part}, min(limits.checked, most(part))
        done = once(feed, times * patience[part[0]], planned=planned, cpu_seconds=limit)
        return replace(done, too_slow=done.sleeps or (done.by_limit and done.cpu_seconds > most(done.begun)))

    runs, stopped, hung = _all_parts(run_of, parts, most_processes, work.budget)
    seen = stopped.keys() | hung.keys() | {number for run in runs for number in run.ended}
    errors = [error for run in runs for error in run.errors]
    counted = {place: count for run in runs for place, count in run.counted.items()}
    classified = Classified(contracts, errors, counted)
    checked = Checked(
        tool=TOOL,
        asked=len(numbers),
        errors=tuple(error for error in errors if not error.breach),
        counted={place: count for place, count in counted.items() if not classified.is_breach(place)},
        stopped=stopped,
        hung=hung,
        diverged=diverged(((run.did, run.ended) for run in runs), steps or {}, counted.keys()),
        unchecked=tuple(number for number in numbers if number not in seen),
        breaches=tuple(classified.breaches),
        left={case: run.left[case] for run in runs for case in run.ended if run.did_all(case, cases[case])},
        unfreed=tuple(unfreed for run in runs for unfreed in run.unfreed),
        stores=classified.lines(stores=True),
        copies=classified.lines(stores=False) if strict else {},
    )
    return _with_ends(checked, runs)


def _with_ends(checked: Checked, runs: Sequence[Run]) -> Checked:
    """Add how the processes ended."""
    return replace(
        checked,
        processes=len(runs),
        cpu_seconds=sum(run.cpu_seconds for run in runs),
        evasion=_evasion(runs, failed=bool(checked.stopped or checked.hung)) if checked.unchecked else "",
        cut=any(run.cut for run in runs),
        unexplained=any(run.unexplained for run in runs),
        unread=tuple((run.at, run.unread, run.begun) for run in runs if run.unread and run.begun),
        refused=next((run.stderr or "it says nothing" for run in runs if not run.begun), ""),
    )


def _evasion(runs: Sequence[Run], *, failed: bool) -> str:
    """Return how a program kept cases from Valgrind, which works on this machine; "" where it did not.

    A program that is slow natively too is no such program.
    """
    if any(run.out_of_time for run in runs):
        return ""
    if not all(run.begun for run in runs):
        return "cannot be started under it"
    if failed:
        return "crashes or does not come back under it"
    return "spoils its report" if any(run.unread for run in runs) else ""


@dataclass(slots=True)
class _Starts:
    """Starts Valgrind. When a process does not begin, debug information may be forged: then all run without it."""

    run: Callable[..., Run]
    budget: Budget
    bare: bool = False

    def __call__(self, feed: Callable[..., bytes], patience: float, **options: Any) -> Run:
        done = self.run(feed, patience, bare=self.bare, **options)
        if done.begun or self.bare or self.budget.empty:
            return done
        self.bare = True
        return self.run(feed, patience, bare=True, **options)


def _patience(
    cases: Sequence[Case], parts: Iterable[Sequence[int]], natively: Mapping[int, float], *, least: float
) -> dict[int, float]:
    """Return the seconds that each case may be silent, at `least` so many, by what an operation needs natively.

    Only cases of the same part count: a process of public cases must not learn how long hidden ones took.
    """
    slowest = ((part, max(natively[i] / len(cases[i].trace.operations) for i in part)) for part in parts)
    return {number: max(least, _SLOWER * seconds) for part, seconds in slowest for number in part}


_Runs = tuple[list[Run], dict[int, int], dict[int, tuple[int, tuple[SourceLine, ...]]]]
"""The runs; the cases that stopped and those that hang, and where."""


def _all_parts(
    run_of: Callable[[Sequence[int], int], Run], parts: Sequence[Sequence[int]], most_processes: int, budget: Budget
) -> _Runs:
    """Run part after part; the cases of a part may share a process."""
    runs: list[Run] = []
    stopped: dict[int, int] = {}
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]] = {}
    for later, part in zip(reversed(range(len(parts))), parts, strict=True):
        most = min(_MOST_TOGETHER, most_processes - len(runs) - later)  # one process is left for each part that follows
        more = _all_runs(run_of, part, most, budget)
        runs, stopped, hung = runs + more[0], stopped | more[1], hung | more[2]
        if runs and runs[-1].gives_up:
            break
    return runs, stopped, hung


def _all_runs(run_of: Callable[[Sequence[int], int], Run], numbers: Sequence[int], most: int, budget: Budget) -> _Runs:
    """Run process after process until every case was run, but at most `most` processes."""
    runs: list[Run] = []
    stopped: dict[int, int] = {}
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]] = {}
    left, suspect = list(numbers), None
    while (left or suspect is not None) and len(runs) < most and not budget.empty:
        run = run_of(left, 1) if suspect is None else run_of([suspect], 2)
        if not run.begun:
            runs.append(replace(run, errors=()))
            break
        left = [number for number in left if number not in run.begun]
        cut_off = run.begun[-1] if run.begun[-1] not in run.ended else None
        if suspect is not None:
            runs = [earlier.without(suspect) for earlier in runs]
        runs.append(run)
        if run.too_slow and cut_off is not None:
            hung[cut_off] = run.at[1], run.where
        if run.gives_up:
            break
        if run.hangs and cut_off is not None and suspect is None:
            suspect = cut_off
            continue
        if run.hangs and cut_off is not None:
            hung[cut_off] = run.at[1], run.where
        elif cut_off is not None and not run.unread:
            stopped[cut_off] = run.at[1]
        suspect = None
    return runs, stopped, hung
