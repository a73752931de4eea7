"""Run the same cases under Valgrind: one process for the public and one for the hidden ones.

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
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, zip_longest

from grader.core.case import Case
from grader.core.judgement import SHARED_MEMORY
from grader.core.model import Access, MemorySpan
from grader.core.optional_stages import OptionalStages
from grader.core.verdict import Advice, SourceLine, Visibility
from grader.runtime.comparison import Comparison
from grader.runtime.native.native_played import NativeStep
from grader.runtime.native.project import Driver, NativeProgram
from grader.runtime.native.replay import plan
from grader.runtime.native.valgrind.memory_faults import Allowed, Checked, Classified, Contract, MemoryFault
from grader.runtime.native.valgrind.one_process import ValgrindRun, run_once
from grader.runtime.native.valgrind.reports import RunProgress
from grader.runtime.protocol import Place
from grader.runtime.runs import by_visibility
from grader.system.budget import Budget
from grader.system.sandbox import Workspace

_LEAST_SECONDS, _TIMES_NATIVE = 2.0, 100  # each is several times what Valgrind was seen to need
_MARGIN = 1.15  # the kernel counts by ticks: it ended processes up to 4 % before their limit
_HARNESS_SECONDS = 0.0005  # per native case, for its own process; under Valgrind there is no such process

_MOST_CASES = 3

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
    driver: Driver,
    optional: OptionalStages,
    allowed: Mapping[int, Sequence[tuple[MemorySpan, ...]]] | None = None,
    steps: Mapping[int, Sequence[NativeStep]] | None = None,
    strict: bool = False,
    origins: bool = False,
) -> Checked:
    """Run the cases with these numbers under Valgrind. If a process dies, the rest goes on in another process.

    `natively` is the CPU time in seconds that each case needs without Valgrind, `steps` what the program did natively,
    `allowed` the contract of each case's operations. A silent case is run again,
    alone, with twice the time, before it counts as hanging. `strict`: a store or copy has its line also where only
    reading is allowed; there is one process only. `origins`: find origins of unset values. `optional` runs what only
    names lines.
    """
    calls = {number: [operation.name for operation in cases[number].trace.operations] for number in numbers}
    contracts = {number: Contract(calls[number], (allowed or {}).get(number, ()), strict) for number in numbers}
    encoded = {number: contract.encoded() for number, contract in contracts.items()}
    parts = by_visibility(cases, sorted(numbers, key=lambda number: natively[number] > _SLOW_SECONDS))
    limits = work.budget.limits
    patience = _patience(cases, parts, natively, least=limits.checked_silent)
    bare = False

    def most(part: Sequence[int]) -> float:
        return enough(natively[number] for number in part)

    def run_of(part: Sequence[int], times: int) -> ValgrindRun:
        nonlocal bare
        run = partial(
            run_once,
            work,
            program,
            partial(plan, cases, part, driver=driver, contracts=encoded, confined=work.confined),
            times * patience[part[0]],
            planned={number: len(calls[number]) for number in part},
            cpu_seconds=min(limits.checked, _MARGIN * most(part)),
            origins=origins,
            optional=optional,
        )
        done = run(bare=bare)
        if not (done.course.begun or bare or work.budget.empty):  # debug information may be forged: all run without it
            bare = True
            done = run(bare=True)
        return replace(done, too_slow=done.sleeps or (done.by_limit and done.cpu_seconds > most(done.course.begun)))

    processes = _Processes(run_of, work.budget)
    processes.run_parts(parts, 1 if strict else MOST_PROCESSES)
    return _checked(processes, contracts, numbers, steps or {}, strict=strict)


def _checked(
    processes: _Processes,
    contracts: Mapping[int, Contract],
    numbers: Sequence[int],
    steps: Mapping[int, Sequence[NativeStep]],
    *,
    strict: bool,
) -> Checked:
    """Return what all processes together reported, and how they ended."""
    runs, stopped, hung = processes.runs, processes.stopped, processes.hung
    courses = [run.course for run in runs]
    seen = stopped.keys() | hung.keys() | {number for course in courses for number in course.ended}
    unchecked = tuple(number for number in numbers if number not in seen)
    errors = [error for run in runs for error in run.report.errors]
    counted = {place: count for course in courses for place, count in course.counted.items() if count}
    classified = Classified(contracts, errors, counted)
    return Checked(
        asked=len(numbers),
        errors=tuple(error for error in errors if not error.breach),
        counted={place: count for place, count in counted.items() if not classified.is_breach(place)},
        stopped=stopped,
        hung=hung,
        diverged=diverged(courses, steps, counted.keys()),
        unchecked=unchecked,
        breaches=tuple(classified.breaches),
        left={case: course.left[case] for course in courses for case in course.ended if course.did_all(case)},
        unfreed=tuple(unfreed for run in runs for unfreed in run.report.unfreed),
        stores=classified.lines(stores=True),
        copies=classified.lines(stores=False) if strict else {},
        processes=len(runs),
        cpu_seconds=sum(run.cpu_seconds for run in runs),
        evasion=_evasion(runs, failed=bool(stopped or hung)) if unchecked else "",
        unknown_instruction=any(run.unknown_instruction for run in runs),
        cut=any(run.cut for run in runs),
        unexplained=any(run.unexplained for run in runs),
        unread=tuple(
            (run.course.at, run.report.unread, tuple(run.course.begun))
            for run in runs
            if run.report.unread and run.course.begun
        ),
        refused=next((run.stderr or "it says nothing" for run in runs if not run.course.begun), ""),
    )


def _evasion(runs: Sequence[ValgrindRun], *, failed: bool) -> str:
    """Return how a program kept cases from Valgrind, which works on this machine; "" where it did not.

    A program that is slow natively too is no such program, nor is one with an instruction that Valgrind does not know.
    """
    if any(run.out_of_time or run.unknown_instruction for run in runs):
        return ""
    if not all(run.course.begun for run in runs):
        return "cannot be started under it"
    if failed:
        return "crashes or does not come back under it"
    return "spoils its report" if any(run.report.unread for run in runs) else ""


def _patience(
    cases: Sequence[Case], parts: Iterable[Sequence[int]], natively: Mapping[int, float], *, least: float
) -> dict[int, float]:
    """Return the seconds that each case may be silent, at `least` so many, by what an operation needs natively.

    Only cases of the same part count: a process of public cases must not learn how long hidden ones took.
    """
    slowest = ((part, max(natively[i] / len(cases[i].trace.operations) for i in part)) for part in parts)
    return {number: max(least, _SLOWER * seconds) for part, seconds in slowest for number in part}


@dataclass(slots=True)
class _Processes:
    """Runs the processes for one submission, and collects the cases that stopped or hang in them, with where."""

    run_of: Callable[[Sequence[int], int], ValgrindRun]
    """Runs one process for these cases, which may be silent for so many times as long as usual."""
    budget: Budget
    runs: list[ValgrindRun] = field(default_factory=list)
    stopped: dict[int, int] = field(default_factory=dict)
    hung: dict[int, tuple[int, tuple[SourceLine, ...]]] = field(default_factory=dict)

    def run_parts(self, parts: Sequence[Sequence[int]], most: int) -> None:
        """Run part after part, in at most `most` processes; the cases of a part may share a process."""
        for later, part in zip(reversed(range(len(parts))), parts, strict=True):
            others = len(self.runs)  # one process is left for each part that follows
            self._run_part(part, min(others + _MOST_TOGETHER, most - later))
            if self.runs and self.runs[-1].gives_up:
                break

    def _run_part(self, numbers: Sequence[int], most: int) -> None:
        """Run process after process until every case was run, or there are `most` processes."""
        left, suspect = list(numbers), None
        while (left or suspect is not None) and len(self.runs) < most and not self.budget.empty:
            run = self.run_of(left, 1) if suspect is None else self.run_of([suspect], 2)
            begun = run.course.begun
            if not begun:
                self.runs.append(replace(run, report=replace(run.report, errors=())))
                break
            left = [number for number in left if number not in begun]
            cut_off = begun[-1] if begun[-1] not in run.course.ended else None
            if suspect is not None:
                self.runs = [earlier.without(suspect) for earlier in self.runs]
            self.runs.append(run)
            hangs = run.hangs and cut_off is not None and not run.gives_up
            if hangs and suspect is None:
                suspect = cut_off
                continue
            suspect = None
            if cut_off is not None and (run.too_slow or hangs):
                self.hung[cut_off] = run.course.at[1], run.report.where
            elif cut_off is not None and not (run.gives_up or run.unknown_instruction or run.report.unread):
                self.stopped[cut_off] = run.course.at[1]
            if run.gives_up:
                break


def enough(natively: Iterable[float]) -> float:
    """Return the most CPU seconds that Valgrind needs for cases that took the seconds `natively`."""
    return _LEAST_SECONDS + _TIMES_NATIVE * sum(max(0.0, seconds - _HARNESS_SECONDS) for seconds in natively)


def diverged(
    courses: Iterable[RunProgress],
    steps: Mapping[int, Sequence[NativeStep]],
    wrong: Collection[Place],
) -> dict[int, int]:
    """Return by case the first operation that differs from the native run, before any error that would explain it."""
    first_differing: dict[int, int] = {}
    for course in courses:
        for case, did in course.did.items():
            natively = [(step.allocations, step.frees, step.live) for step in steps.get(case, ())]
            pairs = zip_longest(did, natively) if case in course.ended else zip(did, natively, strict=False)
            first = next((number for number, (here, there) in enumerate(pairs) if here != there), None)
            if natively and first is not None and not any((case, number) in wrong for number in range(first + 1)):
                first_differing[case] = first
    return first_differing


def cases_without_line(
    comparisons: Sequence[Comparison], checked: Checked, allowed: Allowed, order: Sequence[int]
) -> list[int]:
    """Return a few cases whose first difference is in memory that the operation also reads, with no line known.

    `order` are the failing cases, the first one to look at first.
    """
    lacking = (number for number in order if _lacks_line(number, comparisons[number], checked, allowed))
    return list(islice(lacking, _MOST_CASES))


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
