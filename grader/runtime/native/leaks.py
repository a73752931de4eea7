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
from dataclasses import dataclass, replace

from grader.runtime.comparison import Comparison, End
from grader.runtime.native.driver import Driver
from grader.runtime.native.heap_events import ALLOCATED, BlockEvent, Event
from grader.runtime.native.native_played import NativePlayed, native_played
from grader.runtime.native.native_program import NativeProgram
from grader.runtime.native.plan import WATCH
from grader.runtime.native.replay import replay
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.system.sandbox import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapUse:
    """What became of the allocations of one case."""

    events: Sequence[BlockEvent]
    lost: int = 0
    """The number of allocations that were never freed, when the case reached its end."""
    lost_in_words: str = ""
    """This number in words."""
    lost_from: frozenset[str] = frozenset()
    """The calls that made them; empty: not known."""


def lost_natively(comparison: Comparison) -> int:
    """The number of lost allocations; of very many the harness reports only the number, not each one."""
    played = native_played(comparison)
    return max(played.live, len(_live(played.events))) if played.complete and not comparison.unjudged else 0


def heap_use(comparison: Comparison, traced: Sequence[BlockEvent] | None = None) -> HeapUse:
    """Return what became of a case's allocations; `traced` are its events as `find_lost` completed them."""
    lost = lost_natively(comparison)
    events = native_played(comparison).events if traced is None else traced
    return HeapUse(events=events, lost=lost, lost_in_words=str(lost), lost_from=frozenset(_calls(comparison, events)))


def find_lost(
    work: Workspace, program: NativeProgram, comparisons: Sequence[Comparison], driver: Driver
) -> tuple[dict[int, list[BlockEvent]], float]:
    """Return the events of the cases that say more now, by case, and the CPU seconds that it took.

    They have `BlockEvent.lost_by` where memory was lost, and `Event.SCRATCH` where a call that must fail allocated.
    Raises `GraderError` when the grader's side breaks.
    """
    watched = [WATCH if _allocates_although_refused(comparison) else 0 for comparison in comparisons]
    numbers = [number for number, comparison in enumerate(comparisons) if watched[number] or lost_natively(comparison)]
    if not numbers:
        return {}, 0.0
    cases = [comparisons[number].case for number in numbers]
    failing = [watched[number] for number in numbers]
    again = replay(work, program, cases, driver=driver, failing=failing, tracing=True)
    pairs = zip(numbers, again.played, strict=True)
    traced = {number: _completed_events(native_played(comparisons[number]), played) for number, played in pairs}
    return {number: events for number, events in traced.items() if events is not None}, again.cpu_seconds


def confirm_lost(comparisons: Sequence[Comparison], uses: Sequence[HeapUse], checked: Checked) -> tuple[HeapUse, ...]:
    """Return what the cases lost by Valgrind too, natively reported or not.

    A case that ended lost what was left of it under Valgrind. What Valgrind lists beyond that was lost in any of the
    cases that it lists: it counts in each of them, because only a program that changes the harness's memory hides it.
    """
    confirmed = list(uses)
    ended = {number for number, comparison in enumerate(comparisons) if comparison.end is End.REACHED}
    for case, count in checked.left.items():
        if count > confirmed[case].lost and case in ended:
            confirmed[case] = replace(confirmed[case], lost=count, lost_in_words=str(count))
    for unfreed in checked.unfreed:
        reported: Counter[str] = Counter()
        for case in unfreed.cases:
            reported.update(_calls(comparisons[case], confirmed[case].events))
        others = Counter(unfreed.by_function) - reported
        for case in ended.intersection(unfreed.cases):
            if unfreed.unreported and not confirmed[case].lost:
                lost_in_words = f"{unfreed.unreported} in {len(unfreed.cases)} cases"
                confirmed[case] = replace(confirmed[case], lost=unfreed.unreported, lost_in_words=lost_in_words)
            calls = others.keys() & {operation.name for operation in comparisons[case].case.trace.operations}
            if calls and confirmed[case].lost:  # the name of a helper says nothing about the call
                confirmed[case] = replace(confirmed[case], lost_from=confirmed[case].lost_from | calls)
    return tuple(confirmed)


def _calls(comparison: Comparison, events: Sequence[BlockEvent]) -> list[str]:
    """The calls that made the allocations that the case reported as left."""
    operations = comparison.case.trace.operations
    makers = (event.allocated_by for event in _live(events))
    return [operations[maker].name for maker in makers if 0 <= maker < len(operations)]


def _allocates_although_refused(comparison: Comparison) -> bool:
    return comparison.end is End.REACHED and any(
        ALLOCATED in difference.tags
        for deviation in comparison.deviations
        for difference in deviation.judgement.differences
    )


def _completed_events(played: NativePlayed, again: NativePlayed) -> list[BlockEvent] | None:
    """Return the events with what the second run reports of the same allocations; None if that run diverged."""
    known, traced = _live(played.events), _live(again.events)
    if [_block(event) for event in known] != [_block(event) for event in traced]:
        return None
    others = [event for event in played.events if event.event is not Event.LIVE]
    scratch = [event for event in again.events if event.event is Event.SCRATCH]
    return [*others, *traced, *scratch]


def _live(events: Sequence[BlockEvent]) -> list[BlockEvent]:
    return [event for event in events if event.event is Event.LIVE]


def _block(event: BlockEvent) -> tuple[int, int, int]:
    return event.allocated_by, event.size, event.allocated_at
