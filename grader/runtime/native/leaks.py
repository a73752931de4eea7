"""Find where memory was lost, by which operation or at the end, and where a call that must fail allocated memory.

Cases that came to their end with memory never freed run once more, natively. In that run the harness checks after each
operation which allocations can still be reached from the caller's pointers and the program's own writable data.
Cases in which a call that must fail allocated memory also run once more: what the call freed again is not known at the
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grader.core.errors import TooBusy
from grader.runtime.comparison import ALLOCATED, Comparison, End
from grader.runtime.heap_events import BlockEvent, Event
from grader.runtime.native.driver import Driver
from grader.runtime.native.plan import WATCH
from grader.runtime.native.replay import replay
from grader.runtime.observation import Played
from grader.runtime.program import Program
from grader.system.sandbox import Workspace

__all__ = ["find_lost"]


def find_lost(
    work: Workspace, program: Program, comparisons: Sequence[Comparison], driver: Driver
) -> tuple[tuple[Comparison, ...], float]:
    """Return the comparisons with what was found, and the CPU seconds that it took.

    They have `BlockEvent.lost_by` where memory was lost, and `Event.SCRATCH` where a call that must fail allocated.
    """
    watched = [WATCH if _allocates_although_refused(one) else 0 for one in comparisons]
    chosen = [number for number, one in enumerate(comparisons) if one.lost or watched[number]]
    if not chosen:
        return tuple(comparisons), 0.0
    cases = [comparisons[number].case for number in chosen]
    failing = [watched[number] for number in chosen]
    try:
        traced = replay(work, program, cases, driver=driver, failing=failing, tracing=True)
    except TooBusy:  # what is known without the run is sufficient
        return tuple(comparisons), 0.0
    found = list(comparisons)
    for number, again in zip(chosen, traced.played, strict=True):
        found[number] = _told(found[number], again)
    return tuple(found), traced.cpu_seconds


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
