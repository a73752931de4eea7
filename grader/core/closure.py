"""The closure of a small engine: all states that its calls lead to, and every call in each of them.

A program that does right in all of them can only be wrong in what a small engine never meets. A runtime walks the tour
and reports one checksum for each state (`grader.runtime.protocol.Runtime.closure_sums`); the expected checksums stay
with the grader.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reference.operation import Operation, Reply

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

    def apply(self, operation: Operation) -> Reply:
        """Do a call."""

    def state(self) -> object:
        """All that there is, to be restored."""

    def restore(self, state: object) -> None:
        """Go back to a state."""

    def record(self, operation: Operation, reply: Reply) -> bytes:
        """What a program reports after this call."""

    def essence(self, record: bytes) -> bytes:
        """What of a record decides what comes next, so that two states that share it are the same."""


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
    """Explore a small engine breadth first, so that each state is reached by the fewest calls.

    `progress` is called with the number of states that were explored, every hundred.
    """
    opening, *calls = small.calls
    record = small.record(opening, small.apply(opening))
    met = {small.essence(record)}
    states: list[object] = [small.state()]
    ways, sums = [(-1, 0)], array("I")
    for number, state in enumerate(states):
        changed, total = True, 0
        for call, operation in enumerate(calls, start=1):
            if changed:
                small.restore(state)
            reply = small.apply(operation)
            changed = not reply.refused
            record = small.record(operation, reply)
            total = zlib.crc32(record, zlib.crc32(_NO_HARM, total))
            essence = small.essence(record) if changed else None
            if essence is not None and essence not in met:
                met.add(essence)
                states.append(small.state())
                ways.append((number, call))
        sums.append(total)
        states[number] = None
        if number % 100 == 0:
            progress(number)
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
