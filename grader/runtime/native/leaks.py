"""Find what memory was lost, by which operation or at the end, and where a call that must fail allocated memory.

Cases that came to their end with memory never freed run once more, natively. In that run the harness checks after each
operation which allocations can still be reached from the caller's pointers and the program's own writable data.
Cases in which a call that must fail allocated memory also run once more: what the call freed again is not known at the
end.

What a case lost is known from the harness's table of allocations, into which a program can store. Valgrind's own record
of them has the last word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from grader.runtime.comparison import ALLOCATED, Comparison, End
from grader.runtime.heap_events import BlockEvent, Event
from grader.runtime.memory_faults import Checked
from grader.runtime.native.driver import Driver
from grader.runtime.native.plan import WATCH
from grader.runtime.native.replay import replay
from grader.runtime.observation import Played
from grader.runtime.program import Program
from grader.system.sandbox import Workspace

__all__ = ["confirm_lost", "find_lost"]


def find_lost(
    work: Workspace, program: Program, comparisons: Sequence[Comparison], driver: Driver
) -> tuple[tuple[Comparison, ...], float]:
    """Return the comparisons with what was found, and the CPU seconds that it took.

    They have `BlockEvent.lost_by` where memory was lost, and `Event.SCRATCH` where a call that must fail allocated.
    Raises `GraderError` when the grader's side breaks.
    """
    watched = [WATCH if _allocates_although_refused(one) else 0 for one in comparisons]
    chosen = [number for number, one in enumerate(comparisons) if one.lost or watched[number]]
    if not chosen:
        return tuple(comparisons), 0.0
    cases = [comparisons[number].case for number in chosen]
    failing = [watched[number] for number in chosen]
    traced = replay(work, program, cases, driver=driver, failing=failing, tracing=True)
    found = list(comparisons)
    for number, again in zip(chosen, traced.played, strict=True):
        found[number] = _told(found[number], again)
    return tuple(found), traced.cpu_seconds


def confirm_lost(comparisons: Sequence[Comparison], checked: Checked) -> tuple[Comparison, ...]:
    """Return the comparisons with what Valgrind saw lost, natively reported or not.

    A case that ended lost what was left of it under Valgrind. What Valgrind lists beyond that was lost in any of the
    cases that it lists: it counts in each of them, because only a program that changes the harness's memory hides it.
    """
    found = list(comparisons)
    for case, count in checked.left.items():
        if count > found[case].lost and found[case].end is End.REACHED:
            found[case] = found[case].with_lost(count, str(count))
    for unfreed in checked.unfreed:
        others = Counter(unfreed.by_function) - _allocating_calls([found[case] for case in unfreed.cases])
        for case in unfreed.cases:
            if found[case].end is not End.REACHED:
                continue
            if unfreed.unreported and not found[case].lost:
                actual = f"{unfreed.unreported} in {len(unfreed.cases)} cases"
                found[case] = found[case].with_lost(unfreed.unreported, actual)
            calls = others.keys() & {operation.name for operation in found[case].case.trace.operations}
            if calls and found[case].lost:  # the name of a helper says nothing about the call
                found[case] = replace(found[case], lost_from=frozenset(calls))
    return tuple(found)


def _allocating_calls(comparisons: Sequence[Comparison]) -> Counter[str]:
    """Count the allocations that these cases reported as left, by the call that made them."""
    calls: Counter[str] = Counter()
    for one in comparisons:
        operations = one.case.trace.operations
        makers = (event.allocated_by for event in _live(one.played))
        calls.update(operations[maker].name for maker in makers if 0 <= maker < len(operations))
    return calls


def _allocates_although_refused(one: Comparison) -> bool:
    return one.end is End.REACHED and any(
        ALLOCATED in difference.tags for deviation in one.deviations for difference in deviation.judgement.differences
    )


def _told(one: Comparison, again: Played) -> Comparison:
    """Add what the second run reports of the same allocations; return `one` unchanged if that run diverged."""
    known, traced = _live(one.played), _live(again)
    if [_block(event) for event in known] != [_block(event) for event in traced]:
        return one
    others = [event for event in one.played.events if event.event is not Event.LIVE]
    scratch = [event for event in again.events if event.event is Event.SCRATCH]
    return replace(one, played=replace(one.played, events=[*others, *traced, *scratch]))


def _live(played: Played) -> list[BlockEvent]:
    return [event for event in played.events if event.event is Event.LIVE]


def _block(event: BlockEvent) -> tuple[int, int, int]:
    return event.allocated_by, event.size, event.allocated_at
