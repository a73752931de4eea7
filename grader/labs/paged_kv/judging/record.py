"""The canonical record: everything a white-box test may see, as bytes, and its decoding.

A record is a run of little-endian 32-bit ints; the driver writes the same ones:

    record   := reply_kind reply_value slot{number of engines that the trace uses}
    slot     := pool_bytes engine_lives [engine] region            pool_bytes is -1 while there is no pool
    engine   := pool_pointer_ok total_local_blocks free_local_blocks
                ref_pointer [capacity * int]                       the blocks of the pool; only if ref_pointer is OK
                list_pointer mirrored length sequence{length}
    sequence := seq_id kv_count table_pointer [L1_PT_SIZE * l2_pointer table{for each readable l2_pointer}]
    table    := L2_PT_SIZE * int

A region is the pool between its two guards (pool.py). `engine_lives` is 1 or 0. The pointers are members of
`Pointer`; `list_pointer` tells how the walk along `next` ended (OK: back at the dummy head), `mirrored`
is 1 when the walk along `prev` meets the same nodes in the opposite order.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, L1_PT_SIZE, L2_PT_SIZE
from reference.paged_kv.pool import GUARD_BYTES, region_words

NEXT_WALK = "the walk along next from active_seqs"
PREV_WALK = "the sequences along prev from active_seqs"
"""The names of how the list ends along `next`, and of whether it is the same along `prev`."""


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
_REPLY_WORDS = 2


def state_of(kind: ReplyKind, value: int, state: dict[str, Any], slots: int) -> RecordState:
    """Return the record of a reply and a state of the oracle. Raises `OverflowError` when a number is no int."""
    return RecordState(kind, value, [_slot_of(state.get(str(number))) for number in range(1, slots + 1)])


def _slot_of(slot: dict[str, Any] | None) -> Slot:
    if slot is None:
        return Slot(pool_bytes=-1, region=b"", engine=None)
    engine = None if slot["engine"] is None else _engine_of(slot["engine"])
    return Slot(pool_bytes=slot["pool_bytes"], region=array("i", slot["region"]).tobytes(), engine=engine)


def _engine_of(engine: dict[str, Any]) -> EngineState:
    total, free = array("i", [engine["total_local_blocks"], engine["free_local_blocks"]])
    return EngineState(
        pool_ok=1,
        total_local_blocks=total,
        free_local_blocks=free,
        ref_pointer=Pointer.OK,
        ref_count=array("i", engine["ref_count"]),
        list_pointer=Pointer.OK,
        mirrored=1,
        sequences=list(map(_sequence_of, engine["active_seqs"])),
    )


_OK, _NULL = Pointer.OK, Pointer.NULL  # looked up once: a record has thousands of them


def _sequence_of(sequence: dict[str, Any]) -> SequenceState:
    tables = [table if table is None else array("i", table) for table in sequence["block_table"]]
    l1 = [_NULL if table is None else _OK for table in tables]
    return SequenceState(sequence["seq_id"], sequence["kv_count"], Pointer.OK, l1, tables)


def plain(state: RecordState) -> dict[str, Any]:
    """Return the state of the oracle for a record in which everything can be (recovery.py)."""
    return {
        str(number): {
            "pool_bytes": slot.pool_bytes,
            "region": array("i", slot.region),
            "engine": None if slot.engine is None else _plain_engine(slot.engine),
        }
        for number, slot in enumerate(state.slots, start=1)
        if slot.pool_bytes >= 0
    }


def _plain_engine(engine: EngineState) -> dict[str, Any]:
    return {
        "total_local_blocks": engine.total_local_blocks,
        "free_local_blocks": engine.free_local_blocks,
        "ref_count": engine.ref_count,
        "active_seqs": [
            {"seq_id": sequence.seq_id, "kv_count": sequence.kv_count, "block_table": sequence.tables}
            for sequence in engine.sequences
        ],
    }


class Words(NamedTuple):
    """Consecutive words of a record, and their names; "" for a word that has none."""

    values: Sequence[int]
    names: Iterable[str]


def encode(state: RecordState) -> bytes:
    """Return the bytes of a record. Raises `OverflowError` when a number does not fit into an int."""
    words = array("i", [state.reply_kind, state.reply_value])
    for slot in state.slots:
        for run in _slot_words(slot):
            words.extend(run.values)
    return words.tobytes()


def word_offsets(record: bytes, slots: int) -> dict[str, int]:
    """Return the number of each named word in a record of so many engines. Raises `ValueError` when it is none."""
    offsets: dict[str, int] = {}
    start = _REPLY_WORDS
    for number, slot in enumerate(decode(record, slots).slots, start=1):
        for run in _slot_words(slot):
            for offset, name in zip(range(start, start + len(run.values)), run.names, strict=False):
                if name:
                    offsets[engine_prefix(number) + name] = offset
            start += len(run.values)
    return offsets


def same_state(record: bytes, other: bytes) -> bool:
    """Return whether two records differ at most in the reply."""
    return record[4 * _REPLY_WORDS :] == other[4 * _REPLY_WORDS :]


def _slot_words(slot: Slot) -> Iterator[Words]:
    """The layout of a slot, word by word."""
    yield Words((slot.pool_bytes, slot.engine is not None), ("", ""))
    if slot.engine is not None:
        yield from _engine_words(slot.engine)
    yield Words(array("i", slot.region), (pool_word_name(word, slot.pool_bytes) for word in count()))


def _engine_words(engine: EngineState) -> Iterator[Words]:
    counters = (engine.pool_ok, engine.total_local_blocks, engine.free_local_blocks, engine.ref_pointer)
    yield Words(counters, ("pool_base_ptr", "total_local_blocks", "free_local_blocks", "ref_count"))
    yield Words(engine.ref_count, (f"ref_count[{block}]" for block in count()))
    yield Words((engine.list_pointer, engine.mirrored, len(engine.sequences)), (NEXT_WALK, PREV_WALK, ""))
    for sequence in engine.sequences:
        values = [sequence.seq_id, sequence.kv_count, sequence.table, *sequence.l1]
        for table in sequence.tables:
            values += table or ()
        yield Words(values, _sequence_names(sequence))


def _sequence_names(sequence: SequenceState) -> Iterator[str]:
    name = f"sequence {sequence.seq_id}"
    yield from (f"{name}: seq_id", f"{name}: kv_count", f"{name}: block_table")
    yield from (f"{name}: block_table[{l1}]" for l1 in range(len(sequence.l1)))
    for l1, table in enumerate(sequence.tables):
        yield from (entry_name(sequence.seq_id, l1, l2) for l2 in range(len(table or ())))


def engine_prefix(number: int) -> str:
    """What stands before the name of a word of that engine."""
    return "" if number == 1 else f"engine @{number}: "


def entry_name(seq_id: int, l1: int, l2: int) -> str:
    """The name of an entry of an L2 table."""
    return f"sequence {seq_id}: block_table[{l1}][{l2}]"


def pool_word_name(word: int, pool_bytes: int) -> str:
    """Name the word number `word` of a pool's region as the handout would: by block and slot."""
    byte = word * KV_SIZE - GUARD_BYTES
    if byte < 0:
        return f"the {-byte} bytes before the pool"
    block, slot = divmod(byte // KV_SIZE, KV_PER_BLOCK)
    if block < pool_bytes // BLOCK_SIZE:
        return f"block {block}, slot {slot}"
    if byte < pool_bytes:
        return f"the tail of the pool, {byte - pool_bytes // BLOCK_SIZE * BLOCK_SIZE} bytes behind its last block"
    return f"{byte - pool_bytes} bytes behind the pool"


def decode(record: bytes, slots: int, *, sequences: int = _MOST_SEQUENCES) -> RecordState:
    """Read a record of `slots` engines back, each with at most so many sequences.

    Raises `ValueError` when the bytes are no such record.
    """
    reader = _RecordReader(record)
    kind, value = reader.ints(2)
    decoded = [_decode_slot(reader, sequences) for _ in range(slots)]
    if reader.place != len(record):
        raise ValueError("a record has bytes left over")
    return RecordState(ReplyKind(kind), value, decoded)


def _decode_slot(reader: _RecordReader, most: int) -> Slot:
    pool_bytes, lives = reader.ints(2)
    if lives not in (0, 1) or pool_bytes < -1 or (lives and pool_bytes < 0):
        raise ValueError("a record has an engine without a pool")
    engine = _decode_engine(reader, pool_bytes // BLOCK_SIZE, most) if lives else None
    region = reader.take(4 * region_words(pool_bytes)) if pool_bytes >= 0 else b""
    return Slot(pool_bytes=pool_bytes, region=region, engine=engine)


def _decode_engine(reader: _RecordReader, capacity: int, most: int) -> EngineState:
    pool_ok, total, free, ref_pointer = reader.ints(4)
    ref_count = reader.array(capacity) if ref_pointer == Pointer.OK else array("i")
    list_pointer, mirrored, length = reader.ints(3)
    if not 0 <= length <= most:
        raise ValueError(f"active_seqs leads to {length} sequences, and all calls of the case make no more than {most}")
    sequences = [_decode_sequence(reader) for _ in range(length)]
    return EngineState(
        pool_ok, total, free, _pointer(ref_pointer), ref_count, _pointer(list_pointer), mirrored, sequences
    )


def _decode_sequence(reader: _RecordReader) -> SequenceState:
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


class _RecordReader:
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
