"""A case of random traces counts as one case: it passes if all traces pass, or becomes the shortest trace that fails.

A runtime plays many traces in one process, and returns which of them did not end as they should (`Played.failing`).
Some of these are played again, alone. Only what fails alone counts: effects of traces on each other in one process are
no mistake of the submission. Other cases can be played in the same way if a result is needed soon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from grader.core.case import Case, Expected, Generated
from grader.core.model import ModelFactory, play
from grader.judge.compare import equal_at_start
from grader.runtime.protocol import NO_TIME, Comparison, End, Played, PlayedStep, Replayed
from grader.runtime.runs import by_visibility
from reference.operation import Trace

_AT_ONCE = 10
"""The number of failing traces of each case that are played alone before the results are compared."""
_MOST_ROUNDS = 3
"""If no trace fails alone in this number of rounds, the case counts as passed."""

Compare = Callable[[Played], Comparison]


def together(cases: Sequence[Case], every: int) -> Case:
    """Return one case with the traces of all `cases`. A runtime plays it in one process; see `Generated.every`."""
    traces = tuple(case.trace.operations for case in cases)
    digests = tuple(Generated.digest(case.expected.records, every) for case in cases)
    length = max(map(len, traces))
    generated = Generated(seeds=range(len(cases)), length=length, traces=traces, digests=digests, every=every)
    return replace(cases[0], generated=generated, trace=Trace(operations=()), expected=Expected.of(()))


def play_together(cases: Sequence[Case], play_cases: Callable[[Sequence[Case]], Replayed]) -> Replayed:
    """Play all public cases in one process, all hidden ones in another, and the failing ones again, alone.

    The records of a case that passes here are those of the reference, because it must do exactly what the reference
    does. Cases of random traces are passed to `play_cases` unchanged. `play_cases` plays cases as the runtime does.
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
    """Return `played`, in which the shortest failing trace replaces each failing case of random traces.

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
    """Return trace number `place` of a case of random traces as a case."""
    generated = case.generated
    assert generated is not None
    trace = Trace(operations=generated.traces[place], settings=case.trace.settings)
    seed = generated.seeds[place]
    title = f"{case.title} (seed {seed})"
    return replace(
        case, title=title, seed=seed, trace=trace, expected=Expected.of(play(model(trace), trace)), generated=None
    )


def _shortest(alone: Sequence[Played], compare: Compare) -> Played | None:
    """Return the trace that goes wrong after the fewest operations, cut at that point; None if no trace goes wrong."""
    for played in sorted(
        alone, key=lambda each: (_had_no_time(each), equal_at_start(each.case.expected.records, each.steps))
    ):
        comparison = compare(played)
        if comparison.end is not End.REACHED or comparison.wrong:
            return _cut(played, comparison.first_wrong + 1)
    return None


def _had_no_time(played: Played) -> bool:
    """Return whether earlier traces used up the time: then the result proves nothing about this trace."""
    return played.ending is not None and played.ending.kind == NO_TIME


def _cut(played: Played, length: int) -> Played:
    """Return the first `length` operations of what was played."""
    case, expected = played.case, played.case.expected
    trace = replace(case.trace, operations=case.trace.operations[:length])
    shorter = expected.first(length)
    return replace(played, case=replace(case, trace=trace, expected=shorter), steps=played.steps[:length])
