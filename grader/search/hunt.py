"""Search random traces for one on which a submission goes wrong. A seed makes the same traces in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice

from grader.core.case import Case
from grader.search.player import FailingTrace, TracePlayer, explicit
from reference.oracle import Generator

_LENGTHS = (15, 30, 60, 120)
"""The numbers of operations of the traces, round by round: long ones reach states that short ones do not."""
_FIRST_TRACES, _MOST_TRACES = 15, 90
"""The number of traces of the first round, which doubles from round to round, and of the largest."""
_COMPARED = 6
"""The number of failing traces of a round of which the shortest is returned."""
_MORE_ROUNDS = 4
"""The number of rounds that are played for a failing trace without pokes, where one with pokes is known."""
_SEEDS = 1_000_000
"""The numbers of traces that are reserved for each seed; no search plays so many."""


def hunt(
    player: TracePlayer, generate: Generator, seed: int, *, late: Callable[[], bool], progress: Callable[[int], None]
) -> FailingTrace | None:
    """Return a failing trace: the shortest of a few of the first round that has some; None when time is over.

    While it has pokes, a few more rounds are played for one that makes calls only. `progress` is called with the number
    of traces that were played.
    """
    numbers = count(seed * _SEEDS)
    best: FailingTrace | None = None
    more = _MORE_ROUNDS
    for round_number in count():
        if late() or not more:
            break
        size = min(_FIRST_TRACES << min(round_number, 10), _MOST_TRACES)
        cases = list(_cases(player, generate, islice(numbers, size), _LENGTHS[round_number % len(_LENGTHS)]))
        failing = [trace for _, trace in islice(player.failing(cases), _COMPARED)]
        progress(player.played)
        best = min(filter(None, [best, *failing]), key=lambda trace: _order(player, trace), default=None)
        if best is not None:
            more = more - 1 if _pokes(player, best) else 0
    return best


def _order(player: TracePlayer, failing: FailingTrace) -> tuple[int, int]:
    """Traces without pokes come first, then short ones."""
    return _pokes(player, failing), failing.operation


def _pokes(player: TracePlayer, failing: FailingTrace) -> int:
    operations = player.lab.grammar.operations
    return sum(operations[operation.name].is_poke for operation in failing.case.trace.operations)


def fails(player: TracePlayer, case: Case) -> FailingTrace | None:
    """Return a case of an assignment as a failing trace; of random traces the first that fails. None: none fails.

    The tool that looks for wrong uses of memory looks only where nothing else shows a fault, and goes on looking then.
    """
    traces = [case.trace.operations] if case.generated is None else case.generated.traces
    player.domain.learn(explicit(operations) for operations in traces)
    wholes = [player.case(explicit(operations), dict(case.trace.settings)) for operations in traces]
    instruments = (False, True) if "memory_checker" in player.lab.runtime.options else (False,)
    for player.memory_checker in instruments:
        failing = next((trace for _, trace in player.failing([whole for whole in wholes if whole is not None])), None)
        if failing is not None:
            return failing
    return None


def _cases(player: TracePlayer, generate: Generator, numbers: Iterable[int], length: int) -> Iterator[Case]:
    for number in numbers:
        case = player.case(generate(number, length), player.lab.random_settings(number))
        if case is not None:
            yield case
