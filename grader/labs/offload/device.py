"""Check a log entry by entry, as the device itself would have (Part 0 of the handout), and account for its memory.

Nothing of a log is believed: it comes from a process in which a student's code ran. No memory is allocated here, so a
log of any size can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

VALUE_BYTES = 8
MOST_VALUES = 1 << 19
"""The values for which the device has room at a time, and pinned memory as well; the given module refuses more, too."""

_MOST_LINE, _MOST_NAME, _MOST_POSITION = 10**6, 80, 1 << 30

_CALLS = frozenset(
    {"stream", "event", "alloc", "alloc_pinned", "free", "record_stream", "copy", "record", "wait", "sync"}
)

KERNELS: Mapping[str, frozenset[str]] = {
    "embed": frozenset({"tokens", "out"}),
    "rms_norm": frozenset({"x", "out", "layer", "which"}),
    "q_proj": frozenset({"x", "out", "layer"}),
    "k_proj": frozenset({"x", "out", "layer"}),
    "v_proj": frozenset({"x", "out", "layer"}),
    "rotary": frozenset({"x", "pos"}),
    "attention": frozenset({"q", "k", "v", "out", "causal"}),
    "o_proj": frozenset({"x", "out", "layer"}),
    "mlp": frozenset({"x", "out", "layer"}),
    "add": frozenset({"x", "y", "out"}),
    "logits": frozenset({"x", "out"}),
    "fill": frozenset({"out", "number"}),  # the driver's own: rows that the grader knows
    "probe": frozenset({"k", "v"}),  # the driver's own: reads both ranges
}
"""The arguments of each kernel."""


class WrongEntry(Exception):
    """An entry of a log that the device never writes; the message says why, in words that follow its name."""


class RowSpan(NamedTuple):
    """Rows `lo` to `hi` - 1 of a buffer."""

    buffer: int
    lo: int
    hi: int

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.hi - self.lo


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """The values of a query row."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The values of a key or value row."""
        return self.num_kv_heads * self.head_dim


@dataclass(slots=True, eq=False)
class Buffer:
    """A buffer of the program."""

    rows: int
    width: int
    stream: int | None
    """The stream that it belongs to; None: pinned."""
    line: int
    is_freed: bool = False
    others: tuple[int, ...] = ()
    """The streams that use it too, by `record_stream`."""

    @property
    def values(self) -> int:
        """Its size."""
        return self.rows * self.width


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LoggedCall:
    """An entry of a log that is right: a call of the device."""

    name: str
    """"copy", "record", ...; of a launch the kernel."""
    line: int
    """The line of the submission; 0 for the driver."""
    stream: int = -1
    event: int = -1
    buffer: int = -1
    """What is allocated, freed, or named to another stream."""
    reads: tuple[RowSpan, ...] = ()
    writes: tuple[RowSpan, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of a kernel; ranges are `RowSpan`s."""
    others: tuple[int, ...] = ()
    """Of `free`: the streams for whose work so far the memory waits, besides its own."""

    @property
    def is_work(self) -> bool:
        """Whether it takes a place in a stream."""
        return self.name not in ("stream", "event", "alloc_pinned", "record_stream", "record", "sync")


class LoggedDevice:
    """What the log so far has made: streams, events, buffers, and the memory in use."""

    def __init__(self, config: ModelSizes, *, most_values: int = MOST_VALUES) -> None:
        self.config = config
        self.most_values = most_values
        self.streams: list[str] = []
        """Their names."""
        self.events = 0
        self.buffers: list[Buffer] = []
        self.device_values = 0
        self.pinned_values = 0

    def take(self, entry: object) -> LoggedCall:
        """Return the call of an entry. Raises `WrongEntry`, and has changed nothing then."""
        if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[0], str):
            raise WrongEntry("is no entry [call, ids, rows, line]")
        name, ids, rows, line = entry
        if not _is_number(line, 0, _MOST_LINE):
            raise WrongEntry("has no line")
        if name in KERNELS:
            return self._launch(name, ids, rows, line)
        if name not in _CALLS:
            raise WrongEntry("is no call of the device")
        if not isinstance(ids, list) or not isinstance(rows, list):
            raise WrongEntry("is no entry [call, ids, rows, line]")
        call: LoggedCall = getattr(self, f"_take_{name}")(ids, rows, line)
        return call

    @property
    def device_bytes(self) -> int:
        """Device memory that is allocated and not freed."""
        return self.device_values * VALUE_BYTES

    @property
    def pinned_bytes(self) -> int:
        """Pinned memory that is allocated."""
        return self.pinned_values * VALUE_BYTES

    # Handles

    def _take_stream(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 2, rows, 0)
        if not _is_number(ids[0], len(self.streams), len(self.streams) + 1):
            raise WrongEntry("is not the next stream")
        if not isinstance(ids[1], str) or len(ids[1]) > _MOST_NAME:
            raise WrongEntry("has no name")
        self.streams.append(ids[1])
        return LoggedCall(name="stream", line=line, stream=ids[0])

    def _take_event(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 1, rows, 0)
        if not _is_number(ids[0], self.events, self.events + 1):
            raise WrongEntry("is not the next event")
        self.events += 1
        return LoggedCall(name="event", line=line, event=ids[0])

    def _take_alloc(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 2, rows, 2)
        stream = self._stream(ids[1])
        number = self._new(ids[0], rows, stream, line)
        return LoggedCall(name="alloc", line=line, stream=stream, buffer=number, writes=(RowSpan(number, 0, rows[0]),))

    def _take_alloc_pinned(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 1, rows, 2)
        return LoggedCall(name="alloc_pinned", line=line, buffer=self._new(ids[0], rows, None, line))

    def _take_free(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 1, rows, 0)
        buffer = self._device_memory(ids[0])
        assert buffer.stream is not None
        buffer.is_freed = True
        self.device_values -= buffer.values
        whole = RowSpan(ids[0], 0, buffer.rows)
        return LoggedCall(
            name="free", line=line, stream=buffer.stream, buffer=ids[0], writes=(whole,), others=buffer.others
        )

    # Work

    def _take_record_stream(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 2, rows, 0)
        buffer, stream = self._device_memory(ids[0]), self._stream(ids[1])
        if stream != buffer.stream and stream not in buffer.others:
            buffer.others = (*buffer.others, stream)
        return LoggedCall(name="record_stream", line=line, buffer=ids[0], stream=stream)

    def _take_copy(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 3, rows, 4)
        to, of = self._span([ids[0], *rows[:2]]), self._span([ids[1], *rows[2:]])
        stream = self._stream(ids[2])
        target, source = self.buffers[to.buffer], self.buffers[of.buffer]
        if to.rows != of.rows or target.width != source.width:
            raise WrongEntry("copies between ranges of different sizes")
        if target.stream is None and source.stream is None:
            raise WrongEntry("copies from pinned memory to pinned memory")
        return LoggedCall(name="copy", line=line, stream=stream, reads=(of,), writes=(to,))

    def _take_record(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 2, rows, 0)
        return LoggedCall(name="record", line=line, event=self._event(ids[0]), stream=self._stream(ids[1]))

    def _take_wait(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        _sizes(ids, 2, rows, 0)
        return LoggedCall(name="wait", line=line, stream=self._stream(ids[0]), event=self._event(ids[1]))

    def _take_sync(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        if ids:
            _sizes(ids, 2, rows, 0)
            if ids[0] == "stream":
                return LoggedCall(name="sync", line=line, stream=self._stream(ids[1]))
            if ids[0] == "event":
                return LoggedCall(name="sync", line=line, event=self._event(ids[1]))
            raise WrongEntry("waits for neither a stream nor an event")
        _sizes(ids, 0, rows, 0)
        return LoggedCall(name="sync", line=line)

    def _launch(self, kernel: str, ids: object, given: object, line: int) -> LoggedCall:
        if not isinstance(ids, list) or len(ids) != 1 or not isinstance(given, dict):
            raise WrongEntry("is no entry of a kernel")
        stream = self._stream(ids[0])
        if given.keys() != KERNELS[kernel]:
            raise WrongEntry("has not the arguments of that kernel")
        arguments = {name: self._argument(name, value) for name, value in given.items()}
        self._check_sizes(kernel, arguments)
        inputs = [arguments[name] for name in ("x", "y", "q") if name in arguments]
        lists = [span for name in ("k", "v") if name in arguments for span in arguments[name]]
        target = arguments["x"] if kernel == "rotary" else arguments.get("out")
        return LoggedCall(
            name=kernel,
            line=line,
            stream=stream,
            reads=(*inputs, *lists),
            writes=() if target is None else (target,),
            arguments=arguments,
        )

    # How arguments are checked

    def _new(self, number: object, rows: list[Any], stream: int | None, line: int) -> int:
        if not _is_number(number, len(self.buffers), len(self.buffers) + 1):
            raise WrongEntry("is not the next buffer")
        if not _is_number(rows[0], 0, None) or not _is_number(rows[1], 1, None):
            raise WrongEntry("has sizes that no buffer has")
        buffer = Buffer(rows[0], rows[1], stream, line)
        used = self.pinned_values if stream is None else self.device_values
        if buffer.values > self.most_values - used:
            raise WrongEntry("asks for more memory than there is")
        if stream is None:
            self.pinned_values += buffer.values
        else:
            self.device_values += buffer.values
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def _stream(self, number: Any) -> int:
        if not _is_number(number, 0, len(self.streams)):
            raise WrongEntry("names a stream that is none")
        return int(number)

    def _event(self, number: Any) -> int:
        if not _is_number(number, 0, self.events):
            raise WrongEntry("names an event that is none")
        return int(number)

    def _buffer(self, number: Any) -> Buffer:
        buffer: Buffer | None = self.buffers[number] if _is_number(number, 0, len(self.buffers)) else None
        if buffer is None or buffer.is_freed:
            raise WrongEntry("names a buffer that is none, or was freed")
        return buffer

    def _device_memory(self, number: Any) -> Buffer:
        buffer = self._buffer(number)
        if buffer.stream is None:
            raise WrongEntry("names pinned memory, which has no stream and is never freed")
        return buffer

    def _span(self, value: Any, *, on_device: bool = False) -> RowSpan:
        if not isinstance(value, list) or len(value) != 3:
            raise WrongEntry("has no range")
        number, lo, hi = value
        buffer = self._buffer(number)
        if not _is_number(lo, 0, buffer.rows + 1) or not _is_number(hi, lo, buffer.rows + 1):
            raise WrongEntry("has a range outside its buffer")
        if on_device and buffer.stream is None:
            raise WrongEntry("works on pinned memory")
        return RowSpan(number, lo, hi)

    def _argument(self, name: str, value: Any) -> Any:
        if name in ("x", "y", "q", "out"):
            return self._span(value, on_device=True)
        if name in ("k", "v"):
            if not isinstance(value, list):
                raise WrongEntry("has no list of ranges")
            return tuple(self._span(part, on_device=True) for part in value)
        if not self._fits(name, value):
            raise WrongEntry(f"has a wrong {name}")
        return tuple(value) if name == "tokens" else value

    def _fits(self, name: str, value: Any) -> bool:
        """Whether an argument that is no range is one that the device takes."""
        if name == "tokens":
            vocab = self.config.vocab
            return isinstance(value, list) and all(_is_number(token, 0, vocab) for token in value)
        if name == "which":
            return isinstance(value, str) and value in ("attention", "mlp")
        if name == "causal":
            return isinstance(value, bool)
        return _is_number(value, 0, self.config.num_layers if name == "layer" else _MOST_POSITION)

    def _check_sizes(self, kernel: str, arguments: Mapping[str, Any]) -> None:
        """Raise `WrongEntry` unless the ranges have the sizes that the kernel wants."""
        config = self.config
        hidden, wide, narrow = (config.hidden,), (config.q_width,), (config.kv_width,)
        same = (self.buffers[arguments["x"].buffer].width,) if kernel == "add" else ()
        widths: Mapping[str, Mapping[str, tuple[int, ...]]] = {
            "embed": {"out": hidden},
            "rms_norm": {"x": hidden, "out": hidden},
            "q_proj": {"x": hidden, "out": wide},
            "k_proj": {"x": hidden, "out": narrow},
            "v_proj": {"x": hidden, "out": narrow},
            "rotary": {"x": wide + narrow},
            "attention": {"q": wide, "out": wide},
            "o_proj": {"x": wide, "out": hidden},
            "mlp": {"x": hidden, "out": hidden},
            "add": {"x": same, "y": same, "out": same},
            "logits": {"x": hidden, "out": (config.vocab,)},
            "fill": {"out": narrow},
            "probe": {},
        }
        rows = _rows(kernel, arguments)
        for name, allowed in widths[kernel].items():
            span = arguments[name]
            if span.rows != rows or self.buffers[span.buffer].width not in allowed:
                raise WrongEntry(f"has a wrong size of {name}")
        if kernel == "logits" and rows != 1:
            raise WrongEntry("has a wrong size of x")
        if kernel == "attention":
            keys = [sum(span.rows for span in arguments[name]) for name in "kv"]
            if any(self.buffers[span.buffer].width != config.kv_width for name in "kv" for span in arguments[name]):
                raise WrongEntry("has a wrong width of k or v")
            if keys[0] != keys[1] or keys[0] < 1:
                raise WrongEntry("has not equally many rows of k and v")


def _rows(kernel: str, arguments: Mapping[str, Any]) -> int:
    """The number of rows that a kernel computes."""
    if kernel == "embed":
        return len(arguments["tokens"])
    first = next((arguments[name] for name in ("q", "x", "out") if name in arguments), None)
    return 0 if first is None else int(first.rows)


def _sizes(ids: list[Any], wanted: int, rows: list[Any], wanted_rows: int) -> None:
    if len(ids) != wanted or len(rows) != wanted_rows:
        raise WrongEntry("has not the arguments of that call")


def _is_number(value: Any, least: int, end: int | None) -> bool:
    """Whether it is an int from `least` on, below `end`."""
    return type(value) is int and least <= value and (end is None or value < end)
