"""Search random traces for one on which a submission goes wrong. A seed makes the same traces in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice

from grader.core.case import Case
from grader.search.player import FailingTrace, TracePlayer
from reference.oracle import Generator

_LENGTHS = (15, 30, 60, 120)
"""The numbers of operations of the traces, round by round: long ones reach states that short ones do not."""
_TRACES = 90
"""The number of traces of a round."""
_COMPARED = 6
"""The number of failing traces of a round of which the shortest is returned."""
_SEEDS = 1_000_000
"""The number of traces for each seed, in thousands of rounds more than anybody waits for."""


def hunt(
    player: TracePlayer, generate: Generator, seed: int, *, late: Callable[[], bool], progress: Callable[[int], None]
) -> FailingTrace | None:
    """Return the failing trace of the first round that has one, the shortest of a few; None when time is over.

    `progress` is called with the number of traces that were played.
    """
    numbers = count(seed * _SEEDS)
    for round_number in count():
        if late():
            return None
        cases = list(_cases(player, generate, numbers, _LENGTHS[round_number % len(_LENGTHS)]))
        first = (trace for _, trace in islice(player.failing(cases), _COMPARED))
        failing = min(first, key=lambda trace: trace.operation, default=None)
        progress(player.played)
        if failing is not None:
            return failing
    return None


def _cases(player: TracePlayer, generate: Generator, numbers: Iterator[int], length: int) -> Iterator[Case]:
    for _ in range(_TRACES):
        case = player.case(generate(next(numbers), length))
        if case is not None:
            yield case
