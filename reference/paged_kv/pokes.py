"""White-box pokes: they bring an engine into states that its calls cannot reach, and keep its invariants.

`make_engine` followed by `add_sequence`, `map_block` and `store_record` builds any state without a call.
"""

from __future__ import annotations

from reference.oracle import CannotPoke
from reference.paged_kv.constants import L1_PT_SIZE, MAX_LOGICAL_BLOCKS
from reference.paged_kv.engine import Engine
from reference.paged_kv.sequence import UNMAPPED, Sequence


def move_l2(engine: Engine, seq_id: int, source: int, target: int) -> None:
    """Move an L2 table into another, empty L1 slot."""
    sequence = _sequence(engine, seq_id)
    if not (0 <= source < L1_PT_SIZE and 0 <= target < L1_PT_SIZE):
        raise CannotPoke(f"an L1 table has the slots 0 to {L1_PT_SIZE - 1}")
    tables = sequence.block_table
    if tables[source] is None or tables[target] is not None:
        raise CannotPoke(f"move_l2 needs a table in L1 slot {source} and none in slot {target}")
    tables[source], tables[target] = None, tables[source]


def unmap(engine: Engine, seq_id: int, logical: int) -> None:
    """Set a mapped entry to -1 and release its block, as if this block alone had been freed."""
    sequence = _sequence(engine, seq_id)
    if not 0 <= logical < MAX_LOGICAL_BLOCKS:
        raise CannotPoke(f"a sequence has the logical blocks 0 to {MAX_LOGICAL_BLOCKS - 1}")
    block = sequence.block_at(logical)
    if block == UNMAPPED or engine.ref_count[block] < 1:
        raise CannotPoke(f"unmap needs a block at logical block {logical}")
    sequence.map_block(logical, UNMAPPED)
    engine.release_block(block)


def set_kv_count(engine: Engine, seq_id: int, kv_count: int) -> None:
    """Pretend that the sequence holds `kv_count` KV records."""
    _sequence(engine, seq_id).kv_count = kv_count


def add_sequence(engine: Engine, seq_id: int, kv_count: int) -> None:
    """Append a sequence with `kv_count` KV records and without L2 tables to the list of sequences."""
    if engine.find(seq_id) is not None:
        raise CannotPoke(f"there is a sequence {seq_id} already")
    engine.active_seqs.append(Sequence(seq_id, kv_count))


def map_block(engine: Engine, seq_id: int, logical: int, block: int) -> None:
    """Write a block into an unmapped entry and count its use; if `block` is -1, only create the L2 table."""
    sequence = _sequence(engine, seq_id)
    if not (0 <= logical < MAX_LOGICAL_BLOCKS and UNMAPPED <= block < engine.total_local_blocks):
        raise CannotPoke(f"a sequence has {MAX_LOGICAL_BLOCKS} logical blocks, the pool {engine.total_local_blocks}")
    if sequence.block_at(logical) != UNMAPPED:
        raise CannotPoke(f"logical block {logical} is mapped already")
    sequence.map_block(logical, block)
    if block != UNMAPPED:
        engine.free_local_blocks -= engine.ref_count[block] == 0
        engine.ref_count[block] += 1


def store_record(engine: Engine, place: int, kv_data: int) -> None:
    """Store a KV record at a place of the pool, counted in records from its start."""
    if not 0 <= place < len(engine.pool):
        raise CannotPoke(f"the pool has {len(engine.pool)} records")
    engine.pool[place] = kv_data


def _sequence(engine: Engine, seq_id: int) -> Sequence:
    sequence = engine.find(seq_id)
    if sequence is None:
        raise CannotPoke(f"there is no sequence {seq_id}")
    return sequence
