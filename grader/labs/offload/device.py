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

_CALLS = {
    "stream": (2, 0),
    "event": (1, 0),
    "alloc": (2, 2),
    "alloc_pinned": (1, 2),
    "free": (1, 0),
    "record_stream": (2, 0),
    "copy": (3, 4),
    "record": (2, 0),
    "wait": (2, 0),
    "sync": (2, 0),
}
"""Of each call the number of its ids and of its rows; a sync of everything has no ids."""

_NO_WORK = frozenset(("stream", "event", "alloc_pinned", "record_stream", "record", "sync"))

KERNELS: Mapping[str, Mapping[str, str]] = {
    "embed": {"tokens": "", "out": "hidden"},
    "rms_norm": {"x": "hidden", "out": "hidden", "layer": "", "which": ""},
    "q_proj": {"x": "hidden", "out": "q", "layer": ""},
    "k_proj": {"x": "hidden", "out": "kv", "layer": ""},
    "v_proj": {"x": "hidden", "out": "kv", "layer": ""},
    "rotary": {"x": "q or kv", "pos": ""},
    "attention": {"q": "q", "k": "", "v": "", "out": "q", "causal": ""},
    "o_proj": {"x": "q", "out": "hidden", "layer": ""},
    "mlp": {"x": "hidden", "out": "hidden", "layer": ""},
    "add": {"x": "of x", "y": "of x", "out": "of x"},
    "logits": {"x": "hidden", "out": "vocab"},
    "fill": {"out": "kv", "number": ""},  # the driver's own: rows that the grader knows
    "probe": {"k": "", "v": ""},  # the driver's own: reads both ranges
}
"""The arguments of each kernel; of a range that has as many rows as the kernel computes the name of its width."""

_SIZED = {kernel: [(name, width) for name, width in KERNELS[kernel].items() if width] for kernel in KERNELS}


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

    @property
    def cpu_rows(self) -> int:
        """The rows of a layer in a CPU cache."""
        return self.num_cpu_blocks * self.block_size

    def cpu_row(self, layer: int, block: int, row: int) -> int:
        """The row of a CPU cache that holds a row of a block."""
        return (layer * self.num_cpu_blocks + block) * self.block_size + row


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


@dataclass(slots=True, eq=False, kw_only=True)  # frozen ones take three times as long to make
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
        return self.name not in _NO_WORK


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
        self._widths: Mapping[str, tuple[int, ...]] = {
            "hidden": (config.hidden,),
            "q": (config.q_width,),
            "kv": (config.kv_width,),
            "q or kv": (config.q_width, config.kv_width),
            "vocab": (config.vocab,),
        }

    def take(self, entry: object) -> LoggedCall:
        """Return the call of an entry. Raises `WrongEntry`, and has changed nothing then."""
        if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[0], str):
            raise WrongEntry("is not an entry [call, ids, rows, line]")
        name, ids, rows, line = entry
        if type(line) is not int or not 0 <= line < _MOST_LINE:
            raise WrongEntry("has no line")
        if name in KERNELS:
            return self._launch(name, ids, rows, line)
        if name not in _CALLS:
            raise WrongEntry("is not a call of the device")
        if not isinstance(ids, list) or not isinstance(rows, list):
            raise WrongEntry("is not an entry [call, ids, rows, line]")
        if name == "sync" and not ids and not rows:
            return LoggedCall(name="sync", line=line)
        if (len(ids), len(rows)) != _CALLS[name]:
            raise WrongEntry("does not have the arguments of that call")
        if name in ("stream", "event"):
            return self._handle(name, ids, line)
        if name in ("alloc", "alloc_pinned", "free", "record_stream"):
            return self._memory(name, ids, rows, line)
        if name == "copy":
            return self._copy(ids, rows, line)
        return self._order(name, ids, line)

    @property
    def device_bytes(self) -> int:
        """Device memory that is allocated and not freed."""
        return self.device_values * VALUE_BYTES

    def _handle(self, name: str, ids: list[Any], line: int) -> LoggedCall:
        """Count a new stream or event."""
        number = len(self.streams) if name == "stream" else self.events
        if not _is_number(ids[0], number, number + 1):
            raise WrongEntry(f"is not the next {name}")
        if name == "event":
            self.events += 1
            return LoggedCall(name=name, line=line, event=number)
        if not isinstance(ids[1], str) or len(ids[1]) > _MOST_NAME:
            raise WrongEntry("has no name")
        self.streams.append(ids[1])
        return LoggedCall(name=name, line=line, stream=number)

    def _memory(self, name: str, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        """Allocate or free a buffer, or name it to another stream."""
        if name == "alloc_pinned":
            return LoggedCall(name=name, line=line, buffer=self._new(ids[0], rows, None, line))
        if name == "alloc":
            stream = self._stream(ids[1])
            number = self._new(ids[0], rows, stream, line)
            return LoggedCall(name=name, line=line, stream=stream, buffer=number, writes=(RowSpan(number, 0, rows[0]),))
        number, buffer = ids[0], self._device_memory(ids[0])
        assert buffer.stream is not None
        if name == "record_stream":
            stream = self._stream(ids[1])
            if stream != buffer.stream and stream not in buffer.others:
                buffer.others = (*buffer.others, stream)
            return LoggedCall(name=name, line=line, buffer=number, stream=stream)
        buffer.is_freed = True
        self.device_values -= buffer.values
        whole, owner = RowSpan(number, 0, buffer.rows), buffer.stream
        return LoggedCall(name=name, line=line, stream=owner, buffer=number, writes=(whole,), others=buffer.others)

    def _copy(self, ids: list[Any], rows: list[Any], line: int) -> LoggedCall:
        to, of = self._span([ids[0], *rows[:2]]), self._span([ids[1], *rows[2:]])
        stream = self._stream(ids[2])
        target, source = self.buffers[to.buffer], self.buffers[of.buffer]
        if to.hi - to.lo != of.hi - of.lo or target.width != source.width:
            raise WrongEntry("copies between ranges of different sizes")
        if target.stream is None and source.stream is None:
            raise WrongEntry("copies from pinned memory to pinned memory")
        if target is source and max(to.lo, of.lo) < min(to.hi, of.hi):
            raise WrongEntry("copies between ranges that overlap")
        return LoggedCall(name="copy", line=line, stream=stream, reads=(of,), writes=(to,))

    def _order(self, name: str, ids: list[Any], line: int) -> LoggedCall:
        """Record an event, or let a stream or the host wait."""
        if name == "record":
            return LoggedCall(name=name, line=line, event=self._event(ids[0]), stream=self._stream(ids[1]))
        if name == "wait":
            return LoggedCall(name=name, line=line, stream=self._stream(ids[0]), event=self._event(ids[1]))
        if ids[0] == "stream":
            return LoggedCall(name=name, line=line, stream=self._stream(ids[1]))
        if ids[0] == "event":
            return LoggedCall(name=name, line=line, event=self._event(ids[1]))
        raise WrongEntry("waits for neither a stream nor an event")

    def _launch(self, kernel: str, ids: object, given: object, line: int) -> LoggedCall:
        if not isinstance(ids, list) or len(ids) != 1 or not isinstance(given, dict):
            raise WrongEntry("is not an entry of a kernel")
        stream = self._stream(ids[0])
        if given.keys() != KERNELS[kernel].keys():
            raise WrongEntry("does not have the arguments of that kernel")
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
            raise WrongEntry("has sizes that no buffer can have")
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
        if type(number) is int and 0 <= number < len(self.streams):
            return number
        raise WrongEntry("names a stream that does not exist")

    def _event(self, number: Any) -> int:
        if not _is_number(number, 0, self.events):
            raise WrongEntry("names an event that does not exist")
        return int(number)

    def _buffer(self, number: Any) -> Buffer:
        if type(number) is int and 0 <= number < len(self.buffers):
            buffer = self.buffers[number]
            if not buffer.is_freed:
                return buffer
        raise WrongEntry("names a buffer that does not exist or was freed")

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
        if not (type(lo) is int and type(hi) is int and 0 <= lo <= hi <= buffer.rows):
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
        config, buffers = self.config, self.buffers
        rows = _rows(kernel, arguments)
        for name, width in _SIZED[kernel]:
            span = arguments[name]
            fitting = self._widths[width] if width != "of x" else (buffers[arguments["x"].buffer].width,)
            if span.hi - span.lo != rows or buffers[span.buffer].width not in fitting:
                raise WrongEntry(f"has a wrong size of {name}")
        if kernel == "logits" and rows != 1:
            raise WrongEntry("has a wrong size of x")
        if kernel == "attention":
            keys = [sum([span.hi - span.lo for span in arguments[name]]) for name in "kv"]
            if any(buffers[span.buffer].width != config.kv_width for name in "kv" for span in arguments[name]):
                raise WrongEntry("has a wrong width of k or v")
            if keys[0] != keys[1] or keys[0] < 1:
                raise WrongEntry("has different numbers of rows of k and v")


def _rows(kernel: str, arguments: Mapping[str, Any]) -> int:
    """The number of rows that a kernel computes."""
    if kernel == "embed":
        return len(arguments["tokens"])
    for name in ("q", "x", "out"):
        if name in arguments:
            return int(arguments[name].hi - arguments[name].lo)
    return 0


def _is_number(value: Any, least: int, end: int | None) -> bool:
    """Whether it is an int from `least` on, below `end`."""
    return type(value) is int and least <= value and (end is None or value < end)
