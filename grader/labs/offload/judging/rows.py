"""Rows of the caches: where they lie, and whether they hold what the program itself computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from grader.labs.offload.device.dense import Array, pair_lengths
from grader.labs.offload.judging.replay import Replay
from grader.labs.offload.judging.sentences import CPU, DECODE, RING

_TOLERANCE = 1e-9
Cache = tuple[str, int]
"""The keys ("k") or values ("v") of a layer."""

_Places = NDArray[np.int64]


def agreeing(rows: Array, others: Array) -> NDArray[np.bool_]:
    """For each row whether all its values agree, within 1e-9 of their size; garbage agrees with nothing."""
    close = np.abs(rows - others) <= _TOLERANCE * np.maximum(1.0, np.abs(others))
    return np.asarray(close.all(axis=-1))


def same_keys(rows: Array, others: Array, head_dim: int) -> NDArray[np.bool_]:
    """For each row whether it is the other one, rotated for whatever position."""
    return agreeing(pair_lengths(rows, head_dim), pair_lengths(others, head_dim))


def same(rows: Array, others: Array) -> NDArray[np.bool_]:
    """For each row whether it is the same number by number, garbage included."""
    equal = (rows == others) | (np.isnan(rows) & np.isnan(others))
    return np.asarray(equal.all(axis=-1))


def held(row: Array) -> str:
    """What lies in a wrong row, in words."""
    return "was not copied there (garbage)" if np.isnan(row).all() else "is not what was computed"


def cpu_rows(replay: Replay, of: Cache, table: Sequence[int], tokens: range) -> Array:
    """The rows of some tokens of a sequence in the CPU cache: a copy; garbage for a token without a place."""
    return _rows(replay, CPU["kv".index(of[0])], _cpu_places(replay, of[1], table, tokens))


def decode_rows(replay: Replay, of: Cache, rows: range) -> Array:
    """Some rows of a layer's decode buffer: a copy; garbage without a buffer."""
    return _rows(replay, DECODE["kv".index(of[0])], _decode_places(replay, of[1], rows))


def fill_gaps(replay: Replay, of: Cache, *, table: Sequence[int], cached: range, rows: range, right: Array) -> None:
    """Put the reference's rows where the program's hold garbage: `right` has those of the CPU cache, then of decode."""
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
    """All rows of a buffer of the storage; None where the program has none of the right size."""
    config, number = replay.config, replay.storage.get(name)
    per_layer = config.num_cpu_blocks * config.block_size if name in CPU else config.block_size
    rows = config.num_kv_buffers * config.max_seq_len if name in RING else config.num_layers * per_layer
    contents = None if number is None else replay.memory.contents[number]
    return None if contents is None or contents.shape != (rows, config.kv_width) else contents


def _cpu_places(replay: Replay, layer: int, table: Sequence[int], tokens: range) -> _Places:
    """The row of each token; -1 where the table has no block for it."""
    config = replay.config
    places = []
    for token in tokens:
        number, row = divmod(token, config.block_size)
        block = table[number] if number < len(table) else -1
        known = 0 <= block < config.num_cpu_blocks
        places.append((layer * config.num_cpu_blocks + block) * config.block_size + row if known else -1)
    return np.array(places, dtype=np.int64)


def _decode_places(replay: Replay, layer: int, rows: range) -> _Places:
    return np.array([layer * replay.config.block_size + row for row in rows], dtype=np.int64)
