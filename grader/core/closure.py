"""The closure of a small engine: all states that its calls lead to, and every call in each of them.

A program that does right in all of them can only be wrong in what a small engine never meets. A runtime that can
restore a program's states walks the tour and reports one checksum for each state (`grader.runtime.protocol.Runtime.
walk`); the expected checksums stay with the grader.

Where states cannot be restored, traces go through all transitions (`Covering`). A trace goes on from where it is to the
nearest transition that no trace has gone through, and another one begins where that would take more calls. That is the
rule of thumb for the rural postman's problem, whose best tours take far longer to find than these traces to play.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from grader.core.case import Generated
from grader.core.model import ModelFactory, play
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn

BACK = -1
"""In a tour: go back to the state before."""

_NO_HARM = bytes(8)
"""What a checksum has before each record, two words: how many wrong frees and damaged allocations there were in the
call, and how many allocations where it was refused."""


class SmallEngine(Protocol):
    """The reference of a small engine."""

    @property
    def calls(self) -> Sequence[Operation]:
        """The call that opens the engine, and then those that are done in each of its states."""

    @property
    def most(self) -> int:
        """After so many transitions no further state is looked at."""

    def apply(self, operation: Operation) -> Reply:
        """Do a call. Raises `CannotGoOn` where it is not done in the present state, because its effect is left open."""

    def state(self) -> object:
        """All that there is, to be restored."""

    def restore(self, state: object) -> None:
        """Go back to a state."""

    def record(self, operation: Operation, reply: Reply) -> bytes:
        """What a program reports after this call."""

    def essence(self, record: bytes) -> bytes:
        """What decides what comes next, when this is the record of the last call: states that share it are the same."""


class Transition(NamedTuple):
    """A call in a state; states are numbered in the order in which they are met."""

    state: int
    call: int
    """Its number among the calls of the engine."""
    record: bytes
    after: int
    """The state that it leads to."""


def explored(small: SmallEngine) -> Iterator[Transition]:
    """Yield the transitions of a small engine breadth first: each state is met first by the fewest calls."""
    opening, *calls = small.calls
    essence = small.essence(small.record(opening, small.apply(opening)))
    met = {essence: 0}
    states: list[tuple[object, bytes]] = [(small.state(), essence)]
    count = 0
    for number, (state, own) in enumerate(states):
        if count >= small.most:
            return
        changed = True
        for call, operation in enumerate(calls, start=1):
            if changed:
                small.restore(state)
            try:
                reply = small.apply(operation)
            except CannotGoOn:
                changed = True
                continue
            record = small.record(operation, reply)
            essence = small.essence(record)
            changed = not reply.refused or essence != own
            after = met.setdefault(essence, len(states))
            if after == len(states):
                states.append((small.state(), essence))
            count += 1
            yield Transition(number, call, record, after)
        states[number] = (None, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """A tour through all states and the expected checksums; states are numbered in the order of the tour."""

    calls: tuple[Operation, ...]
    tour: array[int] = field(repr=False)
    """Numbers of calls that lead to a state that was not met before, and `BACK`."""
    ways: tuple[tuple[int, int], ...] = field(repr=False)
    """By state: the state from which it was first reached, and by which call; the shortest way there."""
    sums: array[int] = field(repr=False)
    """By state: the CRC-32 of the records of all calls but the first, one after the other."""

    @property
    def transitions(self) -> int:
        """The number of calls that are checked: all but the first, in each state."""
        return len(self.ways) * (len(self.calls) - 1)

    def trace(self, state: int, call: int | None = None) -> list[Operation]:
        """Return the calls that lead to a state, and this one behind them."""
        operations = [] if call is None else [self.calls[call]]
        while state >= 0:
            state, number = self.ways[state]
            operations.append(self.calls[number])
        return operations[::-1]

    def __len__(self) -> int:
        return len(self.ways)


def closure_of(small: SmallEngine, progress: Callable[[int], None] = lambda _: None) -> Closure:
    """Explore a small engine in which each call is done in each state.

    `progress` is called with the number of states that were explored, every hundred.
    """
    ways, sums = [(-1, 0)], array("I")
    for transition in explored(small):
        if transition.state == len(sums):
            sums.append(0)
            if transition.state % 100 == 0:
                progress(transition.state)
        if transition.after == len(ways):
            ways.append((transition.state, transition.call))
        sums[-1] = zlib.crc32(transition.record, zlib.crc32(_NO_HARM, sums[-1]))
    return _toured(tuple(small.calls), ways, sums)


def _toured(calls: tuple[Operation, ...], ways: Sequence[tuple[int, int]], sums: array[int]) -> Closure:
    """Number the states in the order of a tour that goes down every way once."""
    onward: list[list[int]] = [[] for _ in ways]
    for state, (before, _) in enumerate(ways):
        if before >= 0:
            onward[before].append(state)
    tour, order = array("i"), list[int]()
    for down in _down(onward):
        tour.append(BACK if down is None else ways[down][1])
        if down is not None:
            order.append(down)
    places = {state: place for place, state in enumerate(order)} | {-1: -1}
    return Closure(
        calls=calls,
        tour=tour,
        ways=tuple((places[before], call) for before, call in (ways[state] for state in order)),
        sums=array("I", (sums[state] for state in order)),
    )


def _down(onward: Sequence[Sequence[int]]) -> Iterator[int | None]:
    """Yield the states from the first one on, and None wherever the way goes back."""
    ahead: list[int | None] = [0]
    while ahead:
        state = ahead.pop()
        yield state
        if state is not None:
            ahead.append(None)
            ahead.extend(reversed(onward[state]))


_LONGEST = 60
"""The number of transitions after which a trace ends; what is wrong spoils what comes behind it."""
_MOST_SOUGHT = 300
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
        while ahead and len(ways) < _MOST_SOUGHT:
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
