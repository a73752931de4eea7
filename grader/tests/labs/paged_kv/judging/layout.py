"""The layout of a record, written down a second time from the words of record.py: state in, bytes out."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from grader.labs.paged_kv.judging.record import EngineState, RecordState, SequenceState, Slot

READABLE = (0, 5)  # pointers behind which a table follows: OK and SHARED


def pack_words(words: list[int]) -> bytes:
    """Little-endian 32-bit ints."""
    return struct.pack(f"<{len(words)}i", *words)


def pack(state: RecordState) -> bytes:
    """The bytes of a whole record."""
    parts = [pack_words([state.reply_kind, state.reply_value])]
    for slot in state.slots:
        parts += [pack_words(list(_slot(slot))), slot.region]
    return b"".join(parts)


def _slot(slot: Slot) -> Iterator[int]:
    yield slot.pool_bytes
    yield 0 if slot.engine is None else 1
    if slot.engine is not None:
        yield from _engine(slot.engine)


def _engine(engine: EngineState) -> Iterator[int]:
    yield from (engine.pool_ok, engine.total_local_blocks, engine.free_local_blocks, engine.ref_pointer)
    if engine.ref_pointer == 0:
        yield from engine.ref_count
    yield from (engine.list_pointer, engine.mirrored, len(engine.sequences))
    for sequence in engine.sequences:
        yield from _sequence(sequence)


def _sequence(sequence: SequenceState) -> Iterator[int]:
    yield from (sequence.seq_id, sequence.kv_count, sequence.table)
    if sequence.table in READABLE:
        yield from sequence.l1
        for pointer, table in zip(sequence.l1, sequence.tables, strict=True):
            if pointer in READABLE:
                assert table is not None
                yield from table
