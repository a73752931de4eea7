"""Run the same cases under Valgrind: one process for the public and one for the hidden ones.

Valgrind's XML comes through a pipe. Errors and leaks come in the order in which they happened, and the harness puts a
client message after those of each operation. So each of them belongs to a case, an operation and lines of the student's
file (reports.py). A call's contract says which bytes of a lab's shared memory it may touch (memory_faults.py).

Valgrind's start costs more than all cases together, so they share a process. It looks for leaks in the first eight
cases of a process that lost something, which gives their lines; the harness's own table of allocations says for all of
them what was lost. Because a program can store into that table, Valgrind also lists after every few cases what was
never freed at all: there may not be more of it than the cases reported (`Unfreed`).

A program could detect Valgrind and hide its faults there. No state is reported under Valgrind, but the heap after each
operation is, and the total time. Both are known natively, so a program that behaves differently is noticed.

Only when something is wrong, one further process finds lines that the first could not name. Memcheck has no memory that
may be read but not written. So a store into a shared block, and a wrong copy, have their lines only where that block is
forbidden altogether. And it takes additional time to find where an unset value came from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any

from grader.core.case import Case
from grader.core.difference import SHARED_MEMORY
from grader.core.model import Access, Span
from grader.core.optional_stages import OptionalStages
from grader.core.verdict import Advice, SourceLine, Visibility
from grader.runtime.comparison import Comparison
from grader.runtime.native.native_played import NativeStep
from grader.runtime.native.project import Driver, NativeProgram
from grader.runtime.native.replay import plan
from grader.runtime.native.valgrind.memory_faults import TOOL, Allowed, Checked, Classified, Contract, MemoryFault
from grader.runtime.native.valgrind.one_process import ValgrindRun, run_once
from grader.runtime.native.valgrind.reports import Heap
from grader.runtime.source_lines import Place
from grader.runtime.visibility import by_visibility
from grader.system.budget import Budget
from grader.system.sandbox import Workspace

_LEAST_SECONDS, _BUILDS, _TIMES_NATIVE = 2.0, 12, 100  # each is several times what Valgrind was seen to need
_HARNESS_SECONDS = 0.0005  # per native case, for its own process; under Valgrind there is no such process


def enough(natively: Iterable[float], building: float) -> float:
    """Return the most CPU seconds that Valgrind needs for cases that took the seconds `natively`.

    `building` is the time that compiling and linking took here: a measure of this machine's speed.
    """
    start = max(_LEAST_SECONDS, _BUILDS * building)
    return start + _TIMES_NATIVE * sum(max(0.0, seconds - _HARNESS_SECONDS) for seconds in natively)


def diverged(
    runs: Iterable[tuple[Mapping[int, Sequence[Heap]], Collection[int]]],
    steps: Mapping[int, Sequence[NativeStep]],
    wrong: Collection[Place],
) -> dict[int, int]:
    """Return by case the first operation that differs from the native run, before any error that would explain it.

    A run consists of what it did, by case, and of the cases that it brought to their end.
    """
    first_differing: dict[int, int] = {}
    for cases, ended in runs:
        for case, did in cases.items():
            natively = [(step.allocations, step.frees, step.live) for step in steps.get(case, ())]
            pairs = zip_longest(did, natively) if case in ended else zip(did, natively, strict=False)
            first = next((number for number, (here, there) in enumerate(pairs) if here != there), None)
            if natively and first is not None and not any((case, number) in wrong for number in range(first + 1)):
                first_differing[case] = first
    return first_differing


_MOST_CASES = 3


def cases_without_line(
    comparisons: Sequence[Comparison], checked: Checked, allowed: Allowed, shown: str | None
) -> list[int]:
    """Return a few cases whose first difference is in memory that the operation also reads, with no line known.

    `shown` is the case of the diagnosis; it goes first, then short public ones.
    """
    numbers = [
        number for number, comparison in enumerate(comparisons) if _lacks_line(number, comparison, checked, allowed)
    ]

    def place(number: int) -> tuple[bool, bool, int]:
        case = comparisons[number].case
        return case.name != shown, case.visibility is Visibility.HIDDEN, len(case.trace.operations)

    return sorted(numbers, key=place)[:_MOST_CASES]


def cases_with_unset(checked: Checked) -> list[int]:
    """Return a few cases in which a value was used that was never set."""
    return list(dict.fromkeys(error.case for error in checked.errors if error.unset))[:_MOST_CASES]


def completed(checked: Checked, more: Checked) -> Checked:
    """Return what is known after the further process. It adds lines, but neither errors nor cases."""
    origins = {_identity(error): error.auxiliary for error in more.errors if error.unset}
    return replace(
        checked,
        errors=tuple(
            replace(error, auxiliary=error.auxiliary or origins.get(_identity(error), ())) for error in checked.errors
        ),
        stores=more.stores | checked.stores,
        copies=more.copies,
        processes=checked.processes + more.processes,
        cpu_seconds=checked.cpu_seconds + more.cpu_seconds,
    )


def advice(comparisons: Sequence[Comparison], checked: Checked, allowed: Allowed) -> Iterator[Advice]:
    """Yield advice on stores by calls that may touch nothing, when no effect is left afterwards: each line once.

    Only public cases are used: by its choice of lines a program could otherwise reveal a hidden case.
    """
    seen = set()
    for breach in checked.breaches:
        comparison = comparisons[breach.case]
        touches_nothing = tuple(allowed[breach.case][breach.operation : breach.operation + 1]) == ((),)
        visible = _touched(comparison, breach.operation)
        hidden = comparison.case.visibility is Visibility.HIDDEN
        if hidden or not breach.stores or visible or not touches_nothing or breach.lines[:1] in seen:
            continue
        seen.add(breach.lines[:1])
        call = comparison.case.trace.operations[breach.operation].name
        yield Advice(
            kind="breach",
            message=f"{call} writes here to memory that it should leave alone, though nothing of it is left afterwards",
            case=comparison.case.name,
            operation=breach.operation + 1,
            source=breach.lines,
        )


def _lacks_line(number: int, comparison: Comparison, checked: Checked, allowed: Allowed) -> bool:
    """Whether the last operation with a contract went wrong, had to read, and has no line yet."""
    spans = allowed.get(number, ())
    last = len(spans) - 1
    return (
        last >= 0
        and any(span.access is Access.READ for span in spans[last])
        and _touched(comparison, last)
        and (number, last) not in checked.stores
        and number not in {*checked.stopped, *checked.hung, *checked.unchecked}
        and comparison.played.complete
    )


def _touched(comparison: Comparison, operation: int) -> bool:
    """Whether the native pass shows a difference in shared memory."""
    return any(
        SHARED_MEMORY in difference.tags
        for deviation in comparison.deviations
        if deviation.operation == operation
        for difference in deviation.judgement.differences
    )


def _identity(error: MemoryFault) -> tuple[object, ...]:
    return error.case, error.operation, error.kind, error.lines


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

    def run_of(part: Sequence[int], times: int) -> ValgrindRun:
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


def _with_ends(checked: Checked, runs: Sequence[ValgrindRun]) -> Checked:
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


def _evasion(runs: Sequence[ValgrindRun], *, failed: bool) -> str:
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

    run: Callable[..., ValgrindRun]
    budget: Budget
    bare: bool = False

    def __call__(self, feed: Callable[..., bytes], patience: float, **options: Any) -> ValgrindRun:
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


_Runs = tuple[list[ValgrindRun], dict[int, int], dict[int, tuple[int, tuple[SourceLine, ...]]]]
"""The runs; the cases that stopped and those that hang, and where."""


def _all_parts(
    run_of: Callable[[Sequence[int], int], ValgrindRun],
    parts: Sequence[Sequence[int]],
    most_processes: int,
    budget: Budget,
) -> _Runs:
    """Run part after part; the cases of a part may share a process."""
    runs: list[ValgrindRun] = []
    stopped: dict[int, int] = {}
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]] = {}
    for later, part in zip(reversed(range(len(parts))), parts, strict=True):
        most = min(_MOST_TOGETHER, most_processes - len(runs) - later)  # one process is left for each part that follows
        more = _all_runs(run_of, part, most, budget)
        runs, stopped, hung = runs + more[0], stopped | more[1], hung | more[2]
        if runs and runs[-1].gives_up:
            break
    return runs, stopped, hung


def _all_runs(
    run_of: Callable[[Sequence[int], int], ValgrindRun], numbers: Sequence[int], most: int, budget: Budget
) -> _Runs:
    """Run process after process until every case was run, but at most `most` processes."""
    runs: list[ValgrindRun] = []
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
