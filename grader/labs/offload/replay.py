"""Replay the log of a program on the grader's device: contents, order, and memory in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grader.labs.offload.dense import SCHEDULES, Array, Memory, Schedule, may_hold_garbage, model_of, pair_lengths
from grader.labs.offload.device import (
    CPU,
    DECODE,
    RING,
    LoggedCall,
    LoggedDevice,
    ModelSizes,
    Race,
    Races,
    RowSpan,
    StreamWork,
)
from grader.labs.offload.given.offload_device import DeviceError

_MOST_COST = 1 << 22
"""The limit of the cost of all calls of a case: a thousand times the cost of a right program's calls."""
_ENTRY_COST = 200
_MOST_WHY = 100
_READ_NOTHING = ("alloc", "free", "copy", "wait", "probe", "fill")
"""Calls and kernels that compute nothing from what they read."""
_NO_HOLES = np.zeros(1, dtype=bool)


class CannotJudge(Exception):
    """The rest of a case cannot be judged. The message says why; `line` is a line of the submission."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


@dataclass(slots=True)
class Log:
    """What the program did in one operation."""

    works: list[StreamWork] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)
    entries: int = 0
    created: list[int] = field(default_factory=list)
    """The buffers that were allocated, including pinned ones."""
    keys: dict[int, list[Array]] = field(default_factory=dict)
    """The results of `k_proj`, by layer, in order of launch."""
    values: dict[int, list[Array]] = field(default_factory=dict)
    garbage: list[tuple[LoggedCall, RowSpan]] = field(default_factory=list)
    """The kernels that read garbage, each with the first row that held garbage."""
    most_bytes: int = 0
    """The peak of allocated device memory, in bytes. The allocation in line `most_line` reached it."""
    most_line: int = 0
    most_layers: int = 0
    """The most layers whose keys or values were outside the storage at a time."""
    layers_line: int = 0

    def writes(self, buffer: int | None) -> bool:
        """Whether anything was written into a buffer."""
        return any(span.buffer == buffer for work in self.works for span in work.call.writes)


@dataclass(slots=True)
class Replay:
    """The grader's device during a case."""

    config: ModelSizes
    device: LoggedDevice = field(init=False)
    memory: Memory = field(init=False)
    """The contents of all buffers under the eager schedule."""
    races: Races = field(default_factory=Races)
    calls: list[LoggedCall] = field(default_factory=list)
    storage: dict[str, int] = field(default_factory=dict)
    """The numbers of the program's buffers by the names of its attributes."""
    cost: int = 0
    _layers: dict[int, int] = field(default_factory=dict)
    """For each allocated buffer outside the storage, the layer that wrote it last."""
    _schedules: dict[str, Schedule] = field(init=False)
    _scheduled: int = 0
    """The number of calls that the schedules have taken."""

    def __post_init__(self) -> None:
        """Begin with an empty device."""
        self.device = LoggedDevice(self.config)
        model = model_of(self.config)
        self.memory = Memory(model)
        self._schedules = {name: schedule(Memory(model)) for name, schedule in SCHEDULES.items()}

    def take(self, entries: object) -> Log:
        """Replay the entries that an operation wrote. Raises `CannotJudge` if the device cannot have written them."""
        log = Log(most_bytes=self.device.device_bytes)
        if not isinstance(entries, list):
            raise CannotJudge("its log cannot be read")
        for number, entry in enumerate(entries):
            try:
                call = self.device.take(entry)
            except DeviceError as error:
                what = f"entry {number + 1} of its log is not one that the device writes"
                raise CannotJudge(f"{what}: {str(error)[:_MOST_WHY]}") from error
            self._pay(call)
            self._do(call, log)
        log.entries = len(entries)
        return log

    def logits(self) -> Array | None:
        """Return the first row of the program's logits; None if there is no buffer for them, or it is freed."""
        number = self.storage.get("logits")
        if number is None or self.device.buffers[number].is_freed:
            return None
        return self.memory.rows(RowSpan(number, 0, 1))

    def name_of(self, number: int) -> str:
        """Return the attribute that holds a buffer, "" for workspace."""
        return next((name for name, other in self.storage.items() if other == number), "")

    def wrong_under(self, span: RowSpan) -> list[str]:
        """Return the schedules under which rows of pinned memory differ from the same rows under the eager schedule.

        Each schedule runs the calls that it has not run yet. Without a race all schedules compute the same.
        """
        for call in self.calls[self._scheduled :]:
            for running in self._schedules.values():
                if call.name in ("alloc", "alloc_pinned"):
                    buffer = self.device.buffers[call.buffer]
                    running.memory.create(call.buffer, buffer.rows, buffer.width)
                running.take(call)
        self._scheduled = len(self.calls)
        held = {name: running.memory.rows(span) for name, running in self._schedules.items()}
        return [name for name, rows in held.items() if not _equal(rows, held["eager"])]

    def _pay(self, call: LoggedCall) -> None:
        """Raise `CannotJudge` if a case costs more than a program can need."""
        self.cost += _ENTRY_COST
        for span in (*call.reads, *call.writes):
            self.cost += span.hi - span.lo
        if call.name == "attention":
            self.cost += call.arguments["q"].rows * sum(span.rows for span in call.arguments["k"])
        elif call.buffer >= 0:
            self.cost += self.device.buffers[call.buffer].values
        if self.cost > _MOST_COST:
            raise CannotJudge("the device's work in this case is a thousand times what it needs", call.line)

    def _do(self, call: LoggedCall, log: Log) -> None:
        self.calls.append(call)
        if call.name in ("alloc", "alloc_pinned"):
            buffer = self.device.buffers[call.buffer]
            self.memory.create(call.buffer, buffer.rows, buffer.width)
            log.created.append(call.buffer)
        work, races = self.races.take(call)
        log.races += races
        if work is not None:
            log.works.append(work)
            if call.name not in _READ_NOTHING and (row := self._garbage(call)) is not None:
                log.garbage.append((call, row))
            result = self.memory.run(call) if call.name != "alloc" else None  # `create` filled the buffer with garbage
            if call.name in ("k_proj", "v_proj") and result is not None:
                results = log.keys if call.name == "k_proj" else log.values
                results.setdefault(call.arguments["layer"], []).append(result.copy())
        self._account(call, log)

    def _garbage(self, call: LoggedCall) -> RowSpan | None:
        """Return the first row with garbage that a kernel is about to read; None if there is none."""
        for span in call.reads:
            rows = self.memory.rows(span)
            holes = np.isnan(rows).any(axis=-1) if may_hold_garbage(rows) else _NO_HOLES
            if holes.any():
                row = span.lo + int(holes.argmax())
                return RowSpan(span.buffer, row, row + 1)
        return None

    def _account(self, call: LoggedCall, log: Log) -> None:
        if call.name == "alloc" and self.device.device_bytes > log.most_bytes:
            log.most_bytes, log.most_line = self.device.device_bytes, call.line
        elif call.name == "free":
            self._layers.pop(call.buffer, None)
        elif call.name in ("k_proj", "v_proj"):
            target = call.writes[0].buffer
            if target not in self.storage.values():
                self._layers[target] = call.arguments["layer"]
            layers = len(set(self._layers.values()))
            if layers > log.most_layers:
                log.most_layers, log.layers_line = layers, call.line


def numbers_of(storage: Any, device: LoggedDevice) -> dict[str, int]:
    """Return the numbers of the buffers in a program's attributes. Skip values that are not the number of a buffer."""
    pairs = storage.items() if isinstance(storage, dict) else ()
    return {
        name: number
        for name, number in pairs
        if name != "compute_stream" and type(number) is int and 0 <= number < len(device.buffers)
    }


def _equal(rows: Array, others: Array) -> bool:
    return bool(np.allclose(rows, others, rtol=1e-9, atol=1e-9, equal_nan=True))


_TOLERANCE = 1e-9
Cache = tuple[str, int]
"""The keys ("k") or values ("v") of a layer."""

_Places = NDArray[np.int64]


def agreeing(rows: Array, others: Array) -> NDArray[np.bool_]:
    """Return for each row whether all values agree within 1e-9 of their size. Garbage agrees with nothing."""
    close = np.abs(rows - others) <= _TOLERANCE * np.maximum(1.0, np.abs(others))
    return np.asarray(close.all(axis=-1))


def same_keys(rows: Array, others: Array, head_dim: int) -> NDArray[np.bool_]:
    """Return for each row of keys whether some rotation turns it into the other row."""
    return agreeing(pair_lengths(rows, head_dim), pair_lengths(others, head_dim))


def same(rows: Array, others: Array) -> NDArray[np.bool_]:
    """Return for each row whether all values are equal; garbage equals garbage."""
    equal = (rows == others) | (np.isnan(rows) & np.isnan(others))
    return np.asarray(equal.all(axis=-1))


def held(row: Array) -> str:
    """Return in words what a wrong row contains."""
    return "was not copied there (garbage)" if np.isnan(row).all() else "is not what was computed"


def cpu_rows(replay: Replay, of: Cache, table: Sequence[int], tokens: range) -> Array:
    """Return a copy of the rows of some tokens in the CPU cache; garbage for a token that has no block."""
    return _rows(replay, CPU["kv".index(of[0])], _cpu_places(replay, of[1], table, tokens))


def decode_rows(replay: Replay, of: Cache, rows: range) -> Array:
    """Return a copy of some rows of a layer's decode buffer; garbage if there is no buffer."""
    return _rows(replay, DECODE["kv".index(of[0])], _decode_places(replay, of[1], rows))


def fill_gaps(replay: Replay, of: Cache, *, table: Sequence[int], cached: range, rows: range, right: Array) -> None:
    """Replace garbage by the reference's rows: `right` has the rows of the CPU cache, then of the decode buffer."""
    for name, places, wanted in (
        (CPU["kv".index(of[0])], _cpu_places(replay, of[1], table, cached), right[: len(cached)]),
        (DECODE["kv".index(of[0])], _decode_places(replay, of[1], rows), right[len(cached) :]),
    ):
        contents = contents_of(replay, name)
        if contents is None or not len(places):
            continue
        holes = (places >= 0) & np.isnan(contents[np.maximum(places, 0)]).any(axis=-1)
        contents[places[holes]] = wanted[holes]


def _rows(replay: Replay, name: str, places: _Places) -> Array:
    contents = contents_of(replay, name)
    if contents is None or not len(places):
        return np.full((len(places), replay.config.kv_width), np.nan)
    rows = contents[np.maximum(places, 0)]
    rows[places < 0] = np.nan
    return rows


def contents_of(replay: Replay, name: str) -> Array | None:
    """Return all rows of a buffer of the storage; None if the program has no buffer of the right size."""
    config, number = replay.config, replay.storage.get(name)
    per_layer = config.cpu_rows if name in CPU else config.block_size
    rows = config.num_kv_buffers * config.max_seq_len if name in RING else config.num_layers * per_layer
    contents = None if number is None else replay.memory.contents[number]
    return None if contents is None or contents.shape != (rows, config.kv_width) else contents


def _cpu_places(replay: Replay, layer: int, table: Sequence[int], tokens: range) -> _Places:
    """Return the row of each token; -1 if the table has no block for it."""
    config = replay.config
    places = []
    for token in tokens:
        number, row = divmod(token, config.block_size)
        block = table[number] if number < len(table) else -1
        places.append(config.cpu_row(layer, block, row) if 0 <= block < config.num_cpu_blocks else -1)
    return np.array(places, dtype=np.int64)


def _decode_places(replay: Replay, layer: int, rows: range) -> _Places:
    return np.array([layer * replay.config.block_size + row for row in rows], dtype=np.int64)
