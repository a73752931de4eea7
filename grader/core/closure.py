"""The closure of a small engine: all states that its calls lead to, and every call in each of them.

A program that does right in all of them can only be wrong in what a small engine never meets. A runtime that can
restore a program's states walks the tour and reports one checksum for each state (`grader.runtime.protocol.Runtime.
walk`); the expected checksums stay with the grader. Where states cannot be restored traces go through all transitions
(`grader.core.covering`).
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from reference.operation import Operation, Reply
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
