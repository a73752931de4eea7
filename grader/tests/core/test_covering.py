"""Traces go through all transitions of small engines, and tell which of them may be wrong."""

from __future__ import annotations

from grader.core.closure import covering_of
from grader.tests.support.small_shelf import SHELF, small_shelf
from grader.tests.support.toy_lab import lab
from reference.operation import Operation


def states_of(operations: tuple[Operation, ...]) -> list[tuple[bytes, str]]:
    """Each call of a trace with the state that it meets, as the small engine plays it."""
    small = small_shelf()
    small.apply(operations[0])
    met = []
    for operation in operations[1:]:
        met.append((small.essence(b""), str(operation)))
        small.apply(operation)
    return met


def test_every_call_is_made_in_every_state() -> None:
    """Two boxes are free in either order, one of them, or none: five states, and seven calls in each."""
    covering = covering_of([small_shelf()], lab().model)
    met = [pair for trace in covering.generated.traces for pair in states_of(trace)]

    assert (covering.engines, covering.states, covering.transitions) == (1, 5, 5 * len(SHELF.lines))
    assert len(set(met)) == covering.transitions
    assert len(met) < 1.5 * covering.transitions


def test_what_a_right_trace_goes_through_is_no_suspect() -> None:
    """All else of the failing traces is, the shortest first."""
    covering = covering_of([small_shelf(most=20), small_shelf()], lab().model)
    everything = range(len(covering.walks))
    suspects = covering.suspects(everything)

    assert len(suspects) == covering.transitions
    assert [len(trace) for trace in suspects] == sorted(map(len, suspects))
    assert covering.suspects(()) == []
    for place, walk in enumerate(covering.walks):
        others = {number for other in everything if other != place for number in covering.walks[other]}
        own = [covering.shortest[number] for number in sorted({*walk} - others)]
        assert covering.suspects([place]) == sorted(own, key=len)
