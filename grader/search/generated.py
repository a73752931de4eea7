"""A case of random traces is one case: all traces agree, or it becomes the shortest trace that fails.

A runtime plays many traces in one process, and says which of them did not end as they should (`Played.failing`). Some
are played once more, alone: only what fails alone counts, because what traces of one process do to each other is no
mistake of the submission. Other cases can be played in the same way, when what goes wrong must be known soon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grader.core.case import Case, Expected, Generated
from grader.core.model import ModelFactory, play
from grader.runtime.comparison import Comparison, End
from grader.runtime.observation import NO_TIME, Played, PlayedStep, Replayed
from grader.runtime.runs import by_visibility
from reference.operation import Trace

_AT_ONCE = 10
"""The number of traces of each case that are played alone before it is looked whether one of them fails."""
_MOST_ROUNDS = 3
"""Where none of so many times `_AT_ONCE` traces fails alone, nothing is wrong with the traces themselves."""

Compare = Callable[[Played], Comparison]


def together(cases: Sequence[Case], every: int) -> Case:
    """Return one case of all these traces, which a runtime plays in one process; see `Generated.every`."""
    traces = tuple(case.trace.operations for case in cases)
    digests = tuple(Generated.digest(case.expected.records, every) for case in cases)
    length = max(map(len, traces))
    generated = Generated(seeds=range(len(cases)), length=length, traces=traces, digests=digests, every=every)
    return replace(cases[0], generated=generated, trace=Trace(operations=()), expected=Expected.of(()))


def play_together(cases: Sequence[Case], play_cases: Callable[[Sequence[Case]], Replayed]) -> Replayed:
    """Play all public cases in one process, all hidden ones in another, and some of them once more, alone.

    These are the ones that did not do there exactly what the reference does. So the records of the others are known.
    Random traces are played as always. `play_cases` is what a runtime does, with each case that it gets.
    """
    groups = by_visibility(cases, [place for place, case in enumerate(cases) if case.generated is None])
    random = [place for place, case in enumerate(cases) if case.generated is not None]
    shared = [together([cases[place] for place in group], every=1) for group in groups]
    screened = play_cases([*shared, *(cases[place] for place in random)])
    by_place = dict(zip(random, screened.played[len(groups) :], strict=True))
    failing = [group[place] for group, both in zip(groups, screened.played, strict=False) for place in both.failing]
    alone = play_cases([cases[place] for place in failing])
    by_place |= dict(zip(failing, alone.played, strict=True))
    played = tuple(by_place.get(place) or _as_expected(case) for place, case in enumerate(cases))
    output = screened.output + alone.output
    return replace(alone, played=played, output=output, cpu_seconds=screened.cpu_seconds + alone.cpu_seconds)


def _as_expected(case: Case) -> Played:
    return Played(case, steps=[PlayedStep(record=record) for record in case.expected.records])


def shortest_failing(
    played: Sequence[Played],
    model: ModelFactory,
    play_alone: Callable[[Sequence[Case]], Sequence[Played]],
    compare: Compare,
) -> tuple[Played, ...]:
    """Return what was played; of a failing case of random traces the shortest failing one, with that trace as its case.

    `play_alone` plays each case in a process of its own.
    """
    results = list(played)
    left = {
        place: case_played.failing[: _MOST_ROUNDS * _AT_ONCE]
        for place, case_played in enumerate(played)
        if case_played.failing
    }
    while left:
        plan = [(place, trace) for place, traces in left.items() for trace in traces[:_AT_ONCE]]
        alone = play_alone([_case(played[place].case, trace, model) for place, trace in plan])
        for place in list(left):
            own = [trace_played for (of, _), trace_played in zip(plan, alone, strict=True) if of == place]
            shortest = _shortest(own, compare)
            left[place] = left[place][_AT_ONCE:]
            if shortest is not None or not left[place]:
                results[place] = shortest or replace(played[place], failing=())
                del left[place]
    return tuple(results)


def _case(case: Case, place: int, model: ModelFactory) -> Case:
    """The case of one trace."""
    generated = case.generated
    assert generated is not None
    trace = Trace(operations=generated.traces[place], settings=case.trace.settings)
    seed = generated.seeds[place]
    title = f"{case.title} (seed {seed})"
    return replace(
        case, title=title, seed=seed, trace=trace, expected=Expected.of(play(model(trace), trace)), generated=None
    )


def _shortest(alone: Sequence[Played], compare: Compare) -> Played | None:
    """Return the one that goes wrong first, up to that operation; None when none goes wrong."""
    for played in sorted(alone, key=lambda played: (_had_no_time(played), _first_difference(played))):
        comparison = compare(played)
        if comparison.end is not End.REACHED or comparison.deviations:
            wrong = min((deviation.operation for deviation in comparison.deviations), default=comparison.ended_at)
            return _cut(played, wrong + 1)
    return None


def _had_no_time(played: Played) -> bool:
    """Whether the traces before it used up the time, which says nothing about this one."""
    return played.ending is not None and played.ending.kind == NO_TIME


def _first_difference(played: Played) -> int:
    """The first operation, counted from 0, whose record is not byte for byte the reference's."""
    pairs = zip(played.steps, played.case.expected.records, strict=False)
    return next((number for number, (step, right) in enumerate(pairs) if step.record != right), len(played.steps))


def _cut(played: Played, length: int) -> Played:
    """The same, with a trace that ends with the operation that went wrong."""
    case, expected = played.case, played.case.expected
    trace = replace(case.trace, operations=case.trace.operations[:length])
    shorter = expected.first(length)
    return replace(played, case=replace(case, trace=trace, expected=shorter), steps=played.steps[:length])
