"""Who is ordered before whom: vector clocks over streams, events and host waits, and the races they show (Part 0).

A clock has a component for each stream, and there is one for the host. Work takes the clock of its stream, joined with
the host's, and counts its own component up. `record` puts the stream's clock, joined with the host's, into the event;
`wait` joins the event's into the stream's; a host wait joins into the host's. Work A comes before work B exactly when
B's clock has counted A. That depends on the order of the program's calls alone, so the verdict is the same whatever a
device does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from grader.labs.offload.device import LoggedCall, RowSpan


@dataclass(slots=True, eq=False)  # frozen ones take three times as long to make, and there are tens of thousands
class StreamWork:
    """A call that takes a place in a stream, with its clock."""

    call: LoggedCall
    place: int
    """Its own component of the clock; 0 for what belongs to no stream's order."""
    clock: list[int]


def is_before(first: StreamWork, second: StreamWork) -> bool:
    """Whether the program orders two pieces of work: `first` is done when `second` begins."""
    stream = first.call.stream
    return first.place > 0 and stream < len(second.clock) and second.clock[stream] >= first.place


@dataclass(slots=True)
class Clocks:
    """The clocks of a program so far."""

    streams: list[list[int]] = field(default_factory=list)
    events: dict[int, list[int]] = field(default_factory=dict)
    host: list[int] = field(default_factory=list)

    def take(self, call: LoggedCall) -> StreamWork | None:
        """Count a call. Return the work that it is, None for one that takes no place in a stream."""
        if call.is_work and not call.others:
            return self._work(call)
        match call.name:
            case "stream":
                self.streams.append([])
            case "record":
                self.events[call.event] = _joined(self.streams[call.stream], self.host)
            case "sync":
                self._sync(call)
            case "free":  # what its memory waits for is no stream's order: nothing waits for it
                clock = _joined(self.host, self.streams[call.stream])
                for stream in call.others:
                    clock = _joined(clock, self.streams[stream])
                return StreamWork(call, 0, clock)
        return None

    def _work(self, call: LoggedCall) -> StreamWork:
        stream = call.stream
        clock = _joined(self.streams[stream], self.host)
        if call.name == "wait":
            clock = _joined(clock, self.events.get(call.event, []))
        if len(clock) <= stream:
            clock += [0] * (stream + 1 - len(clock))
        clock[stream] += 1
        self.streams[stream] = clock
        return StreamWork(call, clock[stream], clock)

    def _sync(self, call: LoggedCall) -> None:
        if call.stream >= 0:
            self.host = _joined(self.host, self.streams[call.stream])
        elif call.event >= 0:
            self.host = _joined(self.host, self.events.get(call.event, []))
        else:
            for clock in self.streams:
                self.host = _joined(self.host, clock)


def _joined(clock: list[int], other: list[int]) -> list[int]:
    """The larger of each component: a new clock."""
    if len(clock) < len(other):
        clock, other = other, clock
    if not other:
        return list(clock)
    return [*map(max, clock, other), *clock[len(other) :]]


@dataclass(slots=True, eq=False)
class RowAccess:
    """Rows that work reads or writes."""

    work: StreamWork
    span: RowSpan
    is_write: bool


@dataclass(frozen=True, slots=True, eq=False)
class Race:
    """Two accesses to overlapping rows, one of them a write, that nothing orders."""

    first: RowAccess
    second: RowAccess | None
    """None: the host, which reads when the call returns."""


@dataclass(slots=True)
class Races:
    """The accesses of a program so far that a later one could race with."""

    clocks: Clocks = field(default_factory=Clocks)
    accesses: dict[int, list[RowAccess]] = field(default_factory=dict)

    def take(self, call: LoggedCall) -> tuple[StreamWork | None, list[Race]]:
        """Count a call. Return the work that it is, and the races of its accesses with earlier ones."""
        work = self.clocks.take(call)
        if work is None or not (call.reads or call.writes):
            return work, []
        races: list[Race] = []
        mine = [RowAccess(work, span, False) for span in call.reads if span.hi > span.lo]
        mine += [RowAccess(work, span, True) for span in call.writes if span.hi > span.lo]
        for access in mine:
            races += self._races(access)
        if races:
            self._forget([race.first for race in races])
        for access in mine:
            self._note(access)
        if call.name == "free":
            self.accesses.pop(call.buffer, None)  # it cannot be named any more
        return work, races

    def host_reads(self, span: RowSpan) -> Iterator[Race]:
        """Yield the races of the host, which reads these rows now."""
        for earlier in self.accesses.get(span.buffer, ()):
            if earlier.is_write and _overlap(earlier.span, span) and not self._is_past(earlier):
                yield Race(earlier, None)

    def _races(self, access: RowAccess) -> list[Race]:
        """The races with earlier accesses. It is written without calls, because most of a replay's time is spent here.

        `_overlap` and `is_before` say the same.
        """
        races: list[Race] = []
        (buffer, lo, hi), is_write, clock = access.span, access.is_write, access.work.clock
        for earlier in self.accesses.get(buffer, ()):
            span = earlier.span
            if (is_write or earlier.is_write) and span.lo < hi and lo < span.hi:
                place, stream = earlier.work.place, earlier.work.call.stream
                if place <= 0 or stream >= len(clock) or clock[stream] < place:
                    races.append(Race(earlier, access))
        return races

    def _forget(self, raced: list[RowAccess]) -> None:
        """Forget accesses that raced: each is told with the first that it races with, and a list stays short."""
        for buffer in {access.span.buffer for access in raced}:
            self.accesses[buffer] = [other for other in self.accesses[buffer] if other not in raced]

    def _note(self, access: RowAccess) -> None:
        """Remember an access, and forget those behind which no later access can race unless it races with this one.

        Such are what the host has waited for; what a write of all its rows comes after; and a read of the same stream
        within the rows that are read now.
        """
        (buffer, lo, hi), is_write, work, host = access.span, access.is_write, access.work, self.clocks.host
        clock, left = work.clock, []
        for other in self.accesses.get(buffer, ()):
            place, stream = other.work.place, other.work.call.stream
            is_past = place > 0 and stream < len(host) and host[stream] >= place
            is_covered = (
                (is_write or not other.is_write)
                and lo <= other.span.lo
                and other.span.hi <= hi
                and other.work is not work
                and place > 0
                and stream < len(clock)
                and clock[stream] >= place
            )
            if not (is_past or is_covered):
                left.append(other)
        self.accesses[buffer] = [*left, access]

    def _is_past(self, access: RowAccess) -> bool:
        """Whether the host has waited for it, so that everything from now on comes after it."""
        host, stream, place = self.clocks.host, access.work.call.stream, access.work.place
        return place > 0 and stream < len(host) and host[stream] >= place


def _overlap(span: RowSpan, other: RowSpan) -> bool:
    return span.lo < other.hi and other.lo < span.hi


class Serial(NamedTuple):
    """Two pieces of work that the program orders although they must be able to run at the same time."""

    first: StreamWork
    second: StreamWork
    second_layer: int


def serialised(
    loads: Mapping[int, Sequence[StreamWork]],
    attentions: Mapping[int, StreamWork],
    ends: Mapping[int, StreamWork],
    num_buffers: int,
) -> Iterator[Serial]:
    """Yield what a step orders too much, at most one pair for each two layers.

    `loads` are the copies of each layer into the ring, `attentions` its attention, `ends` its `o_proj`.
    """
    for layer, copies in loads.items():
        for before, attention in attentions.items():
            late = next((copy for copy in copies if is_before(copy, attention)), None)
            if before < layer and late is not None:
                yield Serial(late, attention, before)
        for before, end in ends.items():
            late = next((copy for copy in copies if is_before(end, copy)), None)
            if layer - num_buffers < before < layer and late is not None:
                yield Serial(end, late, layer)


def edge_of(pair: Serial, calls: Sequence[LoggedCall]) -> LoggedCall | None:
    """The wait, of a stream or of the host, that brings the second behind the first; None where they share a stream.

    `calls` are all calls of the program.
    """
    first, second = pair.first, pair.second.call
    if first.call.stream == second.stream:
        return None
    clocks, is_behind = Clocks(), False
    for call in calls:
        clocks.take(call)
        if call is second:
            break
        is_behind = is_behind or call is first.call
        if is_behind and call.name in ("sync", "wait"):
            known = (clocks.host, clocks.streams[second.stream])
            if any(first.call.stream < len(clock) and clock[first.call.stream] >= first.place for clock in known):
                return call
    return None
