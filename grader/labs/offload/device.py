"""What the calls in a log mean (Part 0 of the handout): streams, buffers and memory in use.

Nothing of a log is believed: it comes from a process in which a student's code ran. The validator of the device that
students are given checks each entry once more. No memory is allocated here, so a log of any size can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping
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
"""The parts of a state that list what is wrong in memory, its order and its size."""

VALUE_BYTES = 8

_MOST_LINE = 10**6
_DRIVERS_OWN = {"fill": {"out": "kv", "number": ""}, "probe": {"k": "", "v": ""}}
"""The kernels of the driver: rows that the grader knows, and a read of two ranges."""

_NO_WORK = frozenset(("stream", "event", "alloc_pinned", "record_stream", "record", "sync"))


class RowSpan(NamedTuple):
    """Rows `lo` to `hi` - 1 of a buffer."""

    buffer: int
    lo: int
    hi: int

    @property
    def rows(self) -> int:
        """How many they are."""
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
    """What the log so far has made: streams, buffers, and the memory in use."""

    def __init__(self, config: ModelSizes, *, most_values: int = MOST_VALUES) -> None:
        self.streams: list[str] = []
        """Their names."""
        self.buffers: list[Buffer] = []
        self._most_values = most_values
        self._validator = Validator(config, most_values, {**KERNELS, **_DRIVERS_OWN})

    def take(self, entry: object) -> LoggedCall:
        """Return the call of an entry. Raises `DeviceError`, and has changed nothing then."""
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
    def device_values(self) -> int:
        """The values of device memory that is allocated and not freed."""
        return self._most_values - int(self._validator.left[False])

    @property
    def device_bytes(self) -> int:
        """Their bytes."""
        return self.device_values * VALUE_BYTES

    @property
    def pinned_values(self) -> int:
        """The values of the pinned memory of the host."""
        return self._most_values - int(self._validator.left[True])

    def _memory(self, name: str, ids: list[int], rows: list[int], line: int) -> LoggedCall:
        """Allocate or free a buffer, or name it to another stream."""
        if name in ("alloc", "alloc_pinned"):
            number, owner = ids if name == "alloc" else (ids[0], None)
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
    """A launch with the ranges that the kernel reads and writes."""
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
