"""The closure of a small engine: all states that its calls lead to, and every call in each of these states.

A small engine has so few blocks or requests that all its states can be explored. A program that is right in all of
them can only be wrong in situations that a small engine never reaches. If a runtime can restore a program's states, it
visits all states in one tour (`Closure`) and reports one checksum for each (`grader.runtime.protocol.Runtime.walk`).
The expected checksums stay with the grader.

If states cannot be restored, traces go through all transitions (`Covering`). A trace continues with the nearest
transition that no trace has used, unless a new trace gets to an unused transition with fewer calls. This is a heuristic
for the rural postman problem: finding optimal tours takes far longer than playing these traces.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from grader.core.case import Generated
from grader.core.model import ModelFactory, play
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn

BACK = -1
"""In a tour: go back to the state from which the tour reached the present one."""

_NO_HARM = bytes(8)
"""Two words before each record in a checksum: the number of wrong frees and damaged allocations in the call, and the
number of allocations in a refused call. Both are 0 in a right program."""


class SmallEngine(Protocol):
    """The reference implementation of a small engine (see the module), whose states can be restored."""

    @property
    def calls(self) -> Sequence[Operation]:
        """The call that opens the engine, then the calls that are tried in each of its states."""

    @property
    def most(self) -> int:
        """The number of transitions after which no further state is explored."""

    def apply(self, operation: Operation) -> Reply:
        """Do a call. Raises `CannotGoOn` if the handout does not define the call's effect in the present state."""

    def state(self) -> object:
        """Return the whole state, for `restore`."""

    def restore(self, state: object) -> None:
        """Go back to a state."""

    def record(self, operation: Operation, reply: Reply) -> bytes:
        """Return the record that a right program reports after this call."""

    def essence(self, record: bytes) -> bytes:
        """Return the part of the last call's record that affects later calls. States with equal parts are merged."""


class Transition(NamedTuple):
    """A call in a state. States are numbered in the order in which the exploration reaches them."""

    state: int
    call: int
    """The number of the call among the calls of the engine."""
    record: bytes
    after: int
    """The state to which the call leads."""


def explored(small: SmallEngine) -> Iterator[Transition]:
    """Yield the transitions of a small engine breadth first, so each state is first reached by the fewest calls."""
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
    """The numbers of calls that lead to a new state, and `BACK`."""
    ways: tuple[tuple[int, int], ...] = field(repr=False)
    """For each state: the last step of a shortest way to it, as the state before and the call."""
    sums: array[int] = field(repr=False)
    """For each state: the CRC-32 of the records of all calls except the opening one, in order."""

    @property
    def transitions(self) -> int:
        """The number of checked calls: all calls except the opening one, in each state."""
        return len(self.ways) * (len(self.calls) - 1)

    def trace(self, state: int, call: int | None = None) -> list[Operation]:
        """Return the calls that lead to a state, followed by `call` if it is given."""
        operations = [] if call is None else [self.calls[call]]
        while state >= 0:
            state, number = self.ways[state]
            operations.append(self.calls[number])
        return operations[::-1]

    def __len__(self) -> int:
        return len(self.ways)


def closure_of(small: SmallEngine) -> Closure:
    """Explore a small engine in which every call is possible in every state."""
    ways, sums = [(-1, 0)], array("I")
    for transition in explored(small):
        if transition.state == len(sums):
            sums.append(0)
        if transition.after == len(ways):
            ways.append((transition.state, transition.call))
        sums[-1] = zlib.crc32(transition.record, zlib.crc32(_NO_HARM, sums[-1]))
    return _toured(tuple(small.calls), ways, sums)


def _toured(calls: tuple[Operation, ...], ways: Sequence[tuple[int, int]], sums: array[int]) -> Closure:
    """Number the states in the order of a depth-first tour."""
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
    """Yield the states depth first, and None for each step back."""
    ahead: list[int | None] = [0]
    while ahead:
        state = ahead.pop()
        yield state
        if state is not None:
            ahead.append(None)
            ahead.extend(reversed(onward[state]))


_LONGEST = 60
"""The number of transitions after which a trace ends: after a mistake, the rest of a trace shows little."""
_MOST_SOUGHT = 300
"""The most states that a search for the nearest unused transition visits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Covering:
    """The transitions of some small engines, and traces that go through all of them."""

    engines: int
    states: int
    """The number of states with transitions, of all engines."""
    shortest: tuple[tuple[Operation, ...], ...] = field(repr=False)
    """For each transition: the shortest list of calls that ends with it."""
    walks: tuple[array[int], ...] = field(repr=False)
    """For each trace: its transitions after the opening call."""
    generated: Generated = field(repr=False)
    """The traces, and what the reference does in them."""

    @property
    def transitions(self) -> int:
        """The number of transitions."""
        return len(self.shortest)

    def suspects(self, failing: Collection[int]) -> list[tuple[Operation, ...]]:
        """Return a shortest trace for each transition that only failing traces go through, in order of length."""
        right = {number for place, walk in enumerate(self.walks) if place not in failing for number in walk}
        numbers = {number for place in failing for number in self.walks[place]} - right
        return sorted((self.shortest[number] for number in sorted(numbers)), key=len)


def covering_of(smalls: Sequence[SmallEngine], model: ModelFactory) -> Covering:
    """Explore small engines and return traces that go through all their transitions.

    A model plays the traces to find what a right program does, so the expected records are right even if two different
    states were merged.
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
    """The transitions of a small engine, numbered in the order in which they were found."""

    def __init__(self, calls: tuple[Operation, ...]) -> None:
        self.calls = calls
        self.ways: list[list[int]] = [[]]  # by state: the transitions that lead to it
        self.onward: list[list[int]] = [[]]  # by state: its transitions
        self.near: list[dict[int, int]] = [{}]  # by state: the next states, each with a transition to it
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
        """Yield walks from the first state that together go through each transition."""
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
        """Return the shortest path from `here` through a transition in `left`, [] if it is longer than `most`."""
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
        """Return the key by which the unused transitions of one state are sorted.

        Transitions come in this order: loops, to a state with unused transitions, to other states, to dead ends.
        """
        before, after = self.ends[number]
        return 0 if after == before else 1 if left[after] else 2 if self.onward[after] else 3
