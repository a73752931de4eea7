"""A case of random traces is one case: all traces agree, or it becomes the shortest trace that fails.

A runtime plays many traces in one process, and says which of them did not end as they should (`Played.failing`). Each
is played once more, alone: only what fails alone counts, because what traces of one process do to each other is no
mistake of the submission.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grader.core.case import Case, Expected, Generated
from grader.runtime.comparison import Comparison, End
from grader.runtime.observation import NO_TIME, Played
from reference.model import ModelFactory, play
from reference.operation import Trace

__all__ = ["shortest_failing"]

_TOGETHER = 40
"""The number of traces that are played alone before it is looked whether one of them fails."""


def shortest_failing(
    played: Played,
    model: ModelFactory,
    play_alone: Callable[[Sequence[Case]], Sequence[Played]],
    compare: Callable[[Played], Comparison],
) -> Played:
    """Return what was played of the shortest failing trace, with that trace as its case; `played` where none fails."""
    generated = played.case.generated
    if generated is None or not played.failing:
        return played
    for start in range(0, len(played.failing), _TOGETHER):
        places = played.failing[start : start + _TOGETHER]
        alone = play_alone([_case(played.case, generated, place, model) for place in places])
        wrong = [(_first_wrong(comparison), one) for one in alone if _is_wrong(comparison := compare(one))]
        if wrong:
            length, shortest = min(wrong, key=lambda pair: (_had_no_time(pair[1]), pair[0]))
            return _cut(shortest, length + 1)
    return replace(played, failing=())


def _case(case: Case, generated: Generated, place: int, model: ModelFactory) -> Case:
    """The case of one trace."""
    trace = Trace(operations=generated.traces[place], settings=case.trace.settings)
    title = f"{case.title} (seed {generated.seeds[place]})"
    return replace(case, title=title, trace=trace, expected=Expected.of(play(model(trace), trace)), generated=None)


def _is_wrong(comparison: Comparison) -> bool:
    return comparison.end is not End.REACHED or bool(comparison.deviations)


def _had_no_time(played: Played) -> bool:
    """Whether the traces before it used up the time, which says nothing about this one."""
    return played.ending is not None and played.ending.kind == NO_TIME


def _first_wrong(comparison: Comparison) -> int:
    """The first operation, counted from 0, that went wrong."""
    return min((one.operation for one in comparison.deviations), default=comparison.ended_at)


def _cut(played: Played, length: int) -> Played:
    """The same, with a trace that ends with the operation that went wrong."""
    case, expected = played.case, played.case.expected
    trace = replace(case.trace, operations=case.trace.operations[:length])
    shorter = Expected(expected.replies[:length], expected.records[:length], expected.allowed[:length])
    return replace(played, case=replace(case, trace=trace, expected=shorter), steps=played.steps[:length])
