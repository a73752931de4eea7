"""The canonical record: everything a white-box test may see, as bytes, and its decoding.

A record is a run of little-endian 32-bit ints; the driver writes the same ones:

    record   := reply_kind reply_value slot{number of engines that the trace uses}
    slot     := pool_bytes engine_lives [engine] region            pool_bytes is -1 while there is no pool
    engine   := pool_pointer_ok total_local_blocks free_local_blocks
                ref_pointer [capacity * int]                       capacity = pool_bytes / 64; only if ref_pointer is OK
                list_pointer mirrored length sequence{length}
    sequence := seq_id kv_count table_pointer [16 * l2_pointer 16-int table{for each readable l2_pointer}]

A region is the pool between its two guards (pool.py). `engine_lives` is 1 or 0. The pointers are members of
`Pointer`; `list_pointer` tells how the walk along `next` ended (OK: back at the dummy head), `mirrored`
is 1 when the walk along `prev` meets the same nodes in the opposite order.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count

from reference.paged_kv.engine import Engine
from reference.paged_kv.pool import Pool, region_words
from reference.paged_kv.sequence import Sequence
from reference.paged_kv.words import BLOCK_SIZE, L1_PT_SIZE, L2_PT_SIZE

__all__ = [
    "MORE_SEQUENCES",
    "EngineState",
    "Pointer",
    "RecordState",
    "ReplyKind",
    "SequenceState",
    "Slot",
    "decode",
    "encode",
]


class Pointer(IntEnum):
    """What a pointer in the program's structures leads to, by the table of its allocations."""

    OK = 0
    NULL = 1
    STRAY = 2
    """not into memory that the program allocated"""
    SMALL = 3
    """into an allocation that is too small for what should be there"""
    FREED = 4
    SHARED = 5
    """readable, but the same table was already met in another place"""

    readable: bool
    """Whether what it leads to may be read."""

    def __init__(self, _: int) -> None:
        self.readable = self.name in ("OK", "SHARED")


class ReplyKind(IntEnum):
    """The first word of a record."""

    NOTHING = 0
    """a poke"""
    INT = 1
    NULL = 2
    SEQUENCE = 3
    """a pointer to a live Sequence; the value is its seq_id"""
    ENGINE = 4
    STRAY = 5
    """a pointer to something else"""


@dataclass(slots=True)
class SequenceState:
    """A `Sequence` as found in a record; `tables[i]` is None where `l1[i]` is not readable."""

    seq_id: int
    kv_count: int
    table: Pointer
    l1: list[Pointer] = field(default_factory=list)
    tables: list[array[int] | None] = field(default_factory=list)


@dataclass(slots=True)
class EngineState:
    """An `LLMEngine` as found in a record."""

    pool_ok: int
    total_local_blocks: int
    free_local_blocks: int
    ref_pointer: Pointer
    ref_count: array[int]
    list_pointer: Pointer
    mirrored: int
    sequences: list[SequenceState]


@dataclass(slots=True)
class Slot:
    """One engine of a trace with the region of its pool; `engine` is None before init and after destroy."""

    pool_bytes: int
    region: bytes
    engine: EngineState | None


@dataclass(slots=True)
class RecordState:
    """A whole record, decoded."""

    reply_kind: ReplyKind
    reply_value: int
    slots: list[Slot]


MORE_SEQUENCES = 4
"""A list is followed for so many sequences more than calls could have made; driver.c has the same number."""

_MOST_SEQUENCES = 10_000


def encode(kind: ReplyKind, value: int, slots: Iterable[tuple[Engine | None, Pool | None]]) -> bytes:
    """The record of a reply and of the engine and the pool of each slot.

    Raises `OverflowError` when a number no longer fits into an int.
    """
    words = array("i", [kind, value])
    for engine, pool in slots:
        words.append(-1 if pool is None else pool.pool_bytes)
        words.append(engine is not None)
        if engine is not None:
            words.extend([1, engine.total_local_blocks, engine.free_local_blocks])
            words.extend([Pointer.OK, *engine.ref_count])
            words.extend([Pointer.OK, 1, len(engine.active_seqs)])
            for sequence in engine.active_seqs:
                words.extend(_sequence_words(sequence))
        if pool is not None:
            words.extend(pool.region)
    return words.tobytes()


def same_state(record: bytes, other: bytes) -> bool:
    """Return whether two records differ at most in the reply, their first two ints."""
    return record[8:] == other[8:]


def _sequence_words(sequence: Sequence) -> list[int]:
    l1 = [Pointer.NULL if l2_table is None else Pointer.OK for l2_table in sequence.block_table]
    entries = [block for l2_table in sequence.block_table if l2_table is not None for block in l2_table]
    return [sequence.seq_id, sequence.kv_count, Pointer.OK, *l1, *entries]


def decode(record: bytes, slots: int, *, sequences: int = _MOST_SEQUENCES) -> RecordState:
    """Read a record of `slots` engines back, each with at most so many sequences.

    Raises `ValueError` when the bytes are no such record.
    """
    reader = _Reader(record)
    kind, value = reader.ints(2)
    decoded = [_decode_slot(reader, sequences) for _ in range(slots)]
    if reader.place != len(record):
        raise ValueError("a record has bytes left over")
    return RecordState(ReplyKind(kind), value, decoded)


def _decode_slot(reader: _Reader, most: int) -> Slot:
    pool_bytes, lives = reader.ints(2)
    if lives not in (0, 1) or pool_bytes < -1 or (lives and pool_bytes < 0):
        raise ValueError("a record has an engine without a pool")
    engine = _decode_engine(reader, pool_bytes // BLOCK_SIZE, most) if lives else None
    region = reader.take(4 * region_words(pool_bytes)) if pool_bytes >= 0 else b""
    return Slot(pool_bytes=pool_bytes, region=region, engine=engine)


def _decode_engine(reader: _Reader, capacity: int, most: int) -> EngineState:
    pool_ok, total, free, ref_pointer = reader.ints(4)
    ref_count = reader.array(capacity) if ref_pointer == Pointer.OK else array("i")
    list_pointer, mirrored, length = reader.ints(3)
    if not 0 <= length <= most:
        raise ValueError(f"active_seqs leads to {length} sequences, and all calls of the case make no more than {most}")
    sequences = [_decode_sequence(reader) for _ in range(length)]
    return EngineState(
        pool_ok, total, free, _pointer(ref_pointer), ref_count, _pointer(list_pointer), mirrored, sequences
    )


def _decode_sequence(reader: _Reader) -> SequenceState:
    seq_id, kv_count, pointer = reader.ints(3)
    sequence = SequenceState(seq_id, kv_count, _pointer(pointer))
    if sequence.table.readable:
        sequence.l1 = [_pointer(word) for word in reader.ints(L1_PT_SIZE)]
        entries = reader.array(L2_PT_SIZE * sum(slot.readable for slot in sequence.l1))
        starts = count(step=L2_PT_SIZE)
        sequence.tables = [_table(entries, next(starts)) if slot.readable else None for slot in sequence.l1]
    return sequence


def _table(entries: array[int], start: int) -> array[int]:
    return entries[start : start + L2_PT_SIZE]


_POINTERS = dict(enumerate(Pointer))


def _pointer(word: int) -> Pointer:
    """`Pointer(word)`, ten times faster: a record has thousands of them."""
    try:
        return _POINTERS[word]
    except KeyError:
        raise ValueError(f"{word} is no pointer of a record") from None


class _Reader:
    """Takes ints and bytes off a record, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def take(self, size: int) -> bytes:
        part = self.data[self.place : self.place + size]
        if size < 0 or len(part) != size:
            raise ValueError("a record ends early")
        self.place += size
        return part

    def array(self, count: int) -> array[int]:
        return array("i", self.take(4 * count))

    def ints(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}i", self.take(4 * count))
