"""Where each value stands in a record, by the name that differences have for it."""

from __future__ import annotations

from collections.abc import Iterator

from reference.paged_kv.pool import place_name, region_words
from reference.paged_kv.record import EngineState, Pointer, SequenceState, Slot, decode
from reference.paged_kv.words import L1_PT_SIZE, L2_PT_SIZE

__all__ = ["places"]

_REPLY, _SLOT = 2, 2
"""Words before the first slot; of a slot before its engine."""


def places(record: bytes, slots: int) -> dict[str, int]:
    """The number of each named word in a record of so many engines. Raises `ValueError` when it is no such record."""
    found: dict[str, int] = {}
    place = _REPLY
    for number, slot in enumerate(decode(record, slots).slots, start=1):
        prefix = "" if number == 1 else f"engine @{number}: "
        for name, words in _slot(slot):
            if name:
                found[prefix + name] = place
            place += words
    return found


def _slot(slot: Slot) -> Iterator[tuple[str, int]]:
    yield "", _SLOT
    if slot.engine is not None:
        yield from _engine(slot.engine)
    for word in range(region_words(slot.pool_bytes) if slot.pool_bytes >= 0 else 0):
        yield place_name(word, slot.pool_bytes), 1


def _engine(engine: EngineState) -> Iterator[tuple[str, int]]:
    yield "pool_base_ptr", 1
    yield "total_local_blocks", 1
    yield "free_local_blocks", 1
    yield "ref_count", 1
    for block in range(len(engine.ref_count) if engine.ref_pointer is Pointer.OK else 0):
        yield f"ref_count[{block}]", 1
    yield "the walk along next from active_seqs", 1
    yield "the sequences along prev from active_seqs", 1
    yield "", 1
    for sequence in engine.sequences:
        yield from _sequence(sequence, f"sequence {sequence.seq_id}: ")


def _sequence(sequence: SequenceState, name: str) -> Iterator[tuple[str, int]]:
    yield f"{name}seq_id", 1
    yield f"{name}kv_count", 1
    yield f"{name}block_table", 1
    if sequence.table.readable:
        for slot in range(L1_PT_SIZE):
            yield f"{name}block_table[{slot}]", 1
        for slot, table in enumerate(sequence.tables):
            for entry in range(L2_PT_SIZE if table is not None else 0):
                yield f"{name}block_table[{slot}][{entry}]", 1
