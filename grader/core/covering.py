"""Traces that go through all transitions of small engines, for programs whose states cannot be restored.

A trace goes on from where it is to the nearest transition that no trace has gone through, and another one begins where
that would take more calls. That is the rule of thumb for the rural postman's problem, whose best tours take far longer
to find than these traces to play.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from grader.core.case import Generated
from grader.core.closure import SmallEngine, explored
from grader.core.model import ModelFactory, play
from reference.operation import Operation, Trace

_LONGEST = 60
"""The number of transitions after which a trace ends; what is wrong spoils what comes behind it."""
_MOST_STATES = 300
"""The number of states among which the nearest transition is sought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covering:
    """The transitions of some small engines, and traces that go through all of them."""

    engines: int
    states: int
    """The number of states with transitions, of all engines."""
    shortest: tuple[tuple[Operation, ...], ...] = field(repr=False)
    """By transition: the fewest calls that end with it."""
    walks: tuple[array[int], ...] = field(repr=False)
    """By trace: its transitions, behind the call that opens the engine."""
    generated: Generated = field(repr=False)
    """The traces, and what the reference does in them."""

    @property
    def transitions(self) -> int:
        """Their number."""
        return len(self.shortest)

    def suspects(self, failing: Collection[int]) -> list[tuple[Operation, ...]]:
        """Return the shortest traces of the transitions that only these traces go through, short ones first."""
        right = {number for place, walk in enumerate(self.walks) if place not in failing for number in walk}
        numbers = {number for place in failing for number in self.walks[place]} - right
        return sorted((self.shortest[number] for number in sorted(numbers)), key=len)


def covering_of(smalls: Sequence[SmallEngine], model: ModelFactory) -> Covering:
    """Explore small engines and return traces that go through all their transitions.

    What a right program does in them is asked of a model, so that it is right even if states are merged that differ.
    """
    shortest: list[tuple[Operation, ...]] = []
    walks: list[array[int]] = []
    states = 0
    for small in smalls:
        graph = _Graph(tuple(small.calls))
        for transition in explored(small):
            graph.add(transition.state, transition.call, transition.after)
        walks += [array("i", (len(shortest) + number for number in walk)) for walk in graph.walks()]
        shortest += graph.shortest
        states += sum(map(bool, graph.onward))
    traces = tuple((shortest[walk[0]][0], *(shortest[number][-1] for number in walk)) for walk in walks)
    return Covering(
        engines=len(smalls),
        states=states,
        shortest=tuple(shortest),
        walks=tuple(walks),
        generated=_played(traces, model),
    )


def _played(traces: tuple[tuple[Operation, ...], ...], model: ModelFactory) -> Generated:
    digests = []
    for operations in traces:
        trace = Trace(operations=operations)
        digests.append(Generated.digest((step.record for step in play(model(trace), trace)), every=1))
    length = max(map(len, traces))
    return Generated(seeds=range(len(traces)), length=length, traces=traces, digests=tuple(digests), every=1)


class _Graph:
    """The transitions of a small engine, by numbers in the order in which they were met."""

    def __init__(self, calls: tuple[Operation, ...]) -> None:
        self.calls = calls
        self.ways: list[list[int]] = [[]]  # by state: the transitions that lead to it
        self.onward: list[list[int]] = [[]]  # by state: its transitions
        self.near: list[dict[int, int]] = [{}]  # by state: the states behind it, each with a transition to it
        self.ends: list[tuple[int, int]] = []  # by transition: from which state to which
        self.shortest: list[tuple[Operation, ...]] = []

    def add(self, state: int, call: int, after: int) -> None:
        """Add a transition."""
        number = len(self.ends)
        if after == len(self.ways):
            self.ways.append([*self.ways[state], number])
            self.onward.append([])
            self.near.append({})
        self.onward[state].append(number)
        self.ends.append((state, after))
        if after != state:
            self.near[state].setdefault(after, number)
        before = self.shortest[self.ways[state][-1]] if state else self.calls[:1]
        self.shortest.append((*before, self.calls[call]))

    def walks(self) -> Iterator[list[int]]:
        """Yield walks from the first state, until there is one through each transition."""
        left = [dict.fromkeys(onward) for onward in self.onward]
        for state, way in enumerate(self.ways):
            while left[state]:
                walk, here = list[int](), 0
                ahead = way or self._path(here, left, most=1)
                while ahead and len(walk) < _LONGEST:
                    walk += ahead
                    for number in ahead:
                        before, here = self.ends[number]
                        left[before].pop(number, None)
                    ahead = self._path(here, left, most=len(way) + 1)
                yield walk

    def _path(self, here: int, left: Sequence[Collection[int]], *, most: int) -> list[int]:
        """Return the fewest transitions of which the last is left; nothing where they are more than so many."""
        ways: dict[int, list[int]] = {here: []}
        ahead = deque([here])
        while ahead and len(ways) < _MOST_STATES:
            state = ahead.popleft()
            if left[state]:
                return [*ways[state], min(left[state], key=lambda number: (self._rank(number, left), number))]
            if len(ways[state]) + 1 < most:
                for after, number in self.near[state].items():
                    if after not in ways:
                        ways[after] = [*ways[state], number]
                        ahead.append(after)
        return []

    def _rank(self, number: int, left: Sequence[Collection[int]]) -> int:
        """Which transition of a state comes first: it stays there, others are left behind it, nothing is behind it."""
        before, after = self.ends[number]
        return 0 if after == before else 1 if left[after] else 2 if self.onward[after] else 3
