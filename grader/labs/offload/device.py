"""What the calls in a log mean (Part 0 of the handout): streams, buffers, the memory in use, the order, and the races.

No log is trusted: it comes from a process in which a student's code ran. So each entry is checked once more, by the
validator of the students' own device. No memory is allocated here, so a log of any size can be checked.

The order is kept in vector clocks. A clock has a component for each stream, and the host has a clock too. Work takes
the clock of its stream, joined with the host's, and increments the component of its stream. `record` puts the stream's
clock, joined with the host's, into the event; `wait` joins the event's clock into the stream's; `sync` joins the clocks
that the host waits for into the host's. Work A comes before work B exactly when B's clock has counted A. So the verdict
depends on the order of the program's calls alone, and is the same whatever a device does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from grader.labs.offload.given.offload_device import KERNELS, MOST_VALUES, DeviceError, Validator

CPU = ("k_cache_cpu", "v_cache_cpu")
RING = ("layer_k_cache", "layer_v_cache")
DECODE = ("decode_k_buffer", "decode_v_buffer")
"""The names of the buffers of the storage, for keys and for values."""
STORAGE = (*CPU, *RING, *DECODE)
PARTS = (
    *("lists", "cpu", "ring", "decode", "flush", "values", "logits"),
    *("race_free", "race_workspace", "race_reload", "race_ring", "race_cache", "race_decode", "race_logits"),
    *("overlap", "memory_layers", "memory_left", "memory"),
)
"""The parts of a state that list what is wrong in the contents, order and size of memory."""

VALUE_BYTES = 8

_MOST_LINE = 10**6
_DRIVERS_OWN = {"fill": {"out": "kv", "number": ""}, "probe": {"k": "", "v": ""}}
"""The kernels of the driver: `fill` writes rows that the grader knows, `probe` reads two ranges."""

_NO_WORK = frozenset(("stream", "event", "alloc_pinned", "record_stream", "record", "sync"))


class RowSpan(NamedTuple):
    """Rows `lo` to `hi` - 1 of a buffer."""

    buffer: int
    lo: int
    hi: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.hi - self.lo


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes of a model and of its caches, as the handout's `cfg` has them."""

    num_layers: int
    num_cpu_blocks: int
    block_size: int
    num_kv_buffers: int
    max_seq_len: int
    hidden: int = 12
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 4
    vocab: int = 23

    @property
    def q_width(self) -> int:
        """The number of values in a query row."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The number of values in a key or value row."""
        return self.num_kv_heads * self.head_dim

    @property
    def cpu_rows(self) -> int:
        """The number of rows of a layer in a CPU cache."""
        return self.num_cpu_blocks * self.block_size

    def cpu_row(self, layer: int, block: int, row: int) -> int:
        """Return the row of a CPU cache for a row of a layer's block."""
        return (layer * self.num_cpu_blocks + block) * self.block_size + row


@dataclass(slots=True, eq=False)
class Buffer:
    """A buffer of the program."""

    rows: int
    width: int
    stream: int | None
    """The stream that the buffer belongs to; None for pinned memory."""
    line: int
    is_freed: bool = False
    others: tuple[int, ...] = ()
    """The streams that use the buffer too, by `record_stream`."""

    @property
    def values(self) -> int:
        """The number of values in the buffer."""
        return self.rows * self.width


@dataclass(slots=True, eq=False, kw_only=True)  # frozen ones take three times as long to make
class LoggedCall:
    """A call of the device: an entry of a log, after its check."""

    name: str
    """"copy", "record", ...; for a launch the name of the kernel."""
    line: int
    """The line of the submission; 0 for a call of the driver."""
    stream: int = -1
    event: int = -1
    buffer: int = -1
    """The buffer that is allocated or freed, or that another stream uses too."""
    reads: tuple[RowSpan, ...] = ()
    writes: tuple[RowSpan, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of a kernel; ranges are `RowSpan`s."""
    others: tuple[int, ...] = ()
    """For `free`: the other streams for whose work the memory waits, in addition to its own stream."""

    @property
    def is_work(self) -> bool:
        """Whether the call takes a place in a stream."""
        return self.name not in _NO_WORK


class LoggedDevice:
    """The streams and buffers that the log so far has made, and the memory in use."""

    def __init__(self, config: ModelSizes, *, most_values: int = MOST_VALUES) -> None:
        self.streams: list[str] = []
        """The names of the streams."""
        self.buffers: list[Buffer] = []
        self._most_values = most_values
        self._validator = Validator(config, most_values, {**KERNELS, **_DRIVERS_OWN})

    def take(self, entry: object) -> LoggedCall:
        """Return the call of an entry. Raises `DeviceError`, and changes nothing, if the entry is wrong."""
        if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[0], str):
            raise DeviceError("it is not an entry [call, ids, rows, line]")
        name, ids, rows, line = entry
        if type(line) is not int or not 0 <= line < _MOST_LINE:
            raise DeviceError("it has no line")
        self._validator.take(name, ids, rows)
        if isinstance(rows, dict):
            return _launch(name, ids[0], rows, line)
        match name:
            case "stream":
                self.streams.append(ids[1])
                return LoggedCall(name=name, line=line, stream=ids[0])
            case "event":
                return LoggedCall(name=name, line=line, event=ids[0])
            case "copy":
                to, of = RowSpan(ids[0], *rows[:2]), RowSpan(ids[1], *rows[2:])
                return LoggedCall(name=name, line=line, stream=ids[2], reads=(of,), writes=(to,))
            case "record":
                return LoggedCall(name=name, line=line, event=ids[0], stream=ids[1])
            case "wait":
                return LoggedCall(name=name, line=line, stream=ids[0], event=ids[1])
            case "sync":
                return LoggedCall(name=name, line=line, **dict([ids] if ids else ()))
        return self._memory(name, ids, rows, line)

    @property
    def device_bytes(self) -> int:
        """The bytes of device memory that is allocated and not freed."""
        return (self._most_values - int(self._validator.left[False])) * VALUE_BYTES

    def _memory(self, name: str, ids: list[int], rows: list[int], line: int) -> LoggedCall:
        """Allocate or free a buffer, or note that another stream uses it."""
        if name in ("alloc", "alloc_pinned"):
            owner = ids[1] if name == "alloc" else None
            self.buffers.append(Buffer(rows[0], rows[1], owner, line))
        number, buffer = ids[0], self.buffers[ids[0]]
        whole = RowSpan(number, 0, buffer.rows)
        match name:
            case "alloc_pinned":
                return LoggedCall(name=name, line=line, buffer=number)
            case "alloc":
                return LoggedCall(name=name, line=line, stream=ids[1], buffer=number, writes=(whole,))
            case "free":
                buffer.is_freed, owner = True, buffer.stream
                assert owner is not None
                return LoggedCall(
                    name=name, line=line, stream=owner, buffer=number, writes=(whole,), others=buffer.others
                )
        if ids[1] not in (buffer.stream, *buffer.others):
            buffer.others = (*buffer.others, ids[1])
        return LoggedCall(name=name, line=line, buffer=number, stream=ids[1])


def _launch(kernel: str, stream: int, given: Mapping[str, Any], line: int) -> LoggedCall:
    """Return a launch with the ranges that the kernel reads and writes."""
    arguments = dict(given)
    for name in arguments.keys() & {"x", "y", "q", "out"}:
        arguments[name] = RowSpan(*given[name])
    for name in arguments.keys() & {"k", "v"}:
        arguments[name] = tuple(RowSpan(*span) for span in given[name])
    inputs = [arguments[name] for name in ("x", "y", "q") if name in arguments]
    lists = [span for name in ("k", "v") for span in arguments.get(name, ())]
    target = arguments["x"] if kernel == "rotary" else arguments.get("out")
    return LoggedCall(
        name=kernel,
        line=line,
        stream=stream,
        reads=(*inputs, *lists),
        writes=() if target is None else (target,),
        arguments=arguments,
    )


@dataclass(slots=True, eq=False)  # frozen ones take three times as long to make, and there are tens of thousands
class StreamWork:
    """A call that takes a place in a stream, and the call's vector clock."""

    call: LoggedCall
    place: int
    """The stream's own component of the clock; 0 for work that is not in a stream's order."""
    clock: list[int]


def is_before(first: StreamWork, second: StreamWork) -> bool:
    """Return whether the program orders two pieces of work, so that `first` is done when `second` begins."""
    stream = first.call.stream
    return first.place > 0 and stream < len(second.clock) and second.clock[stream] >= first.place


@dataclass(slots=True)
class Clocks:
    """The clocks of a program so far."""

    streams: list[list[int]] = field(default_factory=list)
    events: dict[int, list[int]] = field(default_factory=dict)
    host: list[int] = field(default_factory=list)

    def take(self, call: LoggedCall) -> StreamWork | None:
        """Count a call in the clocks. Return its work, or None if the call takes no place in a stream."""
        if call.is_work and not call.others:
            return self._work(call)
        match call.name:
            case "stream":
                self.streams.append([])
            case "record":
                self.events[call.event] = _joined(self.streams[call.stream], self.host)
            case "sync":
                self._sync(call)
            case "free":  # the memory waits for several streams, but no stream waits for the free
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
    """Return a new clock with the larger of each component."""
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
    """Two accesses without an order to overlapping rows, at least one of them a write."""

    first: RowAccess
    second: RowAccess | None
    """The later access; None is the host, which reads when the call returns."""


@dataclass(slots=True)
class Races:
    """The accesses of a program so far that a later access could race with."""

    clocks: Clocks = field(default_factory=Clocks)
    accesses: dict[int, list[RowAccess]] = field(default_factory=dict)

    def take(self, call: LoggedCall) -> tuple[StreamWork | None, list[Race]]:
        """Note the accesses of a call. Return its work, and the races of these accesses with earlier ones."""
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
            self.accesses.pop(call.buffer, None)  # no later call can name a freed buffer
        return work, races

    def host_reads(self, span: RowSpan) -> Iterator[Race]:
        """Yield the races of the host, which reads these rows now."""
        for earlier in self.accesses.get(span.buffer, ()):
            if earlier.is_write and _overlap(earlier.span, span) and not self._is_past(earlier):
                yield Race(earlier, None)

    def _races(self, access: RowAccess) -> list[Race]:
        """Return the races with earlier accesses.

        Most of a replay's time is spent here, so `_overlap` and `is_before` are not called but written out.
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
        """Forget accesses that raced: each is reported only with its first race, and the lists stay short."""
        for buffer in {access.span.buffer for access in raced}:
            self.accesses[buffer] = [other for other in self.accesses[buffer] if other not in raced]

    def _note(self, access: RowAccess) -> None:
        """Remember an access, and forget each earlier access that can only race if this access races too.

        These are accesses for which the host has waited, accesses ordered before a write of all their rows, and reads
        ordered before a read of all their rows.
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
        """Return whether the host has waited for an access: everything from now on comes after the access."""
        host, stream, place = self.clocks.host, access.work.call.stream, access.work.place
        return place > 0 and stream < len(host) and host[stream] >= place


def _overlap(span: RowSpan, other: RowSpan) -> bool:
    return span.lo < other.hi and other.lo < span.hi


class Serial(NamedTuple):
    """Two pieces of work that are ordered although they must be able to run at the same time."""

    first: StreamWork
    second: StreamWork
    second_layer: int


def serialised(
    loads: Mapping[int, Sequence[StreamWork]],
    attentions: Mapping[int, StreamWork],
    ends: Mapping[int, StreamWork],
    num_buffers: int,
) -> Iterator[Serial]:
    """Yield pairs of work that a decode orders without need, at most one for each two layers.

    By layer: `loads` has the copies into the ring, `attentions` the attention, `ends` the `o_proj`.
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
    """Return the wait, of a stream or of the host, that orders the pair; None if both are in one stream.

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
