"""Where lost memory was lost: by an operation that let go of the last pointer to it, or left behind at the end.

Cases that came to their end with memory that nobody freed run once more, natively. Then the harness looks after each
operation which allocations can still be reached from the caller's pointers and the program's own writable data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grader.compare import Comparison
from grader.errors import TooBusy
from grader.lab import Program
from grader.replay import BlockEvent, Event, Played, replay
from grader.sandbox import Workspace
from reference.operation import Trace

__all__ = ["find_lost"]


def find_lost(
    work: Workspace,
    program: Program,
    comparisons: Sequence[Comparison],
    *,
    codes: dict[str, int],
    settings: Callable[[Trace], tuple[int, ...]],
) -> tuple[tuple[Comparison, ...], float]:
    """The comparisons, with `BlockEvent.lost_by` where memory was lost, and the CPU seconds that it took."""
    losing = [number for number, one in enumerate(comparisons) if one.lost]
    if not losing:
        return tuple(comparisons), 0.0
    cases = [comparisons[number].case for number in losing]
    try:
        traced = replay(work, program, cases, codes=codes, settings=settings, tracing=True)
    except TooBusy:  # what is known without it is enough
        return tuple(comparisons), 0.0
    found = list(comparisons)
    for number, again in zip(losing, traced.played, strict=True):
        found[number] = _told(found[number], again)
    return tuple(found), traced.cpu_seconds


def _told(one: Comparison, again: Played) -> Comparison:
    """With what the second run says of the same allocations; without it, should that have gone another way."""
    known, traced = _live(one.played), _live(again)
    if [_block(event) for event in known] != [_block(event) for event in traced]:
        return one
    others = [event for event in one.played.events if event.event is not Event.LIVE]
    return replace(one, played=replace(one.played, events=[*others, *traced]))


def _live(played: Played) -> list[BlockEvent]:
    return [event for event in played.events if event.event is Event.LIVE]


def _block(event: BlockEvent) -> tuple[int, int, int]:
    return event.allocated_by, event.size, event.allocated_at
