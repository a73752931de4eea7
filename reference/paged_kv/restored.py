"""Engines taken over from what a program left: the state from which its next call is judged."""

from __future__ import annotations

from array import array

from reference.model import CannotGoOn
from reference.paged_kv.engine import Engine
from reference.paged_kv.pool import Pool
from reference.paged_kv.readable import pointer_name
from reference.paged_kv.record import Pointer, SequenceState, Slot
from reference.paged_kv.sequence import UNMAPPED
from reference.paged_kv.words import BLOCK_SIZE

__all__ = ["restored_engine"]


def restored_engine(slot: Slot, pool: Pool, number: int) -> Engine:
    """Engine `number`, of a slot that has one, with a pool of its own. Raises `CannotGoOn` when it is too broken."""
    state = slot.engine
    assert state is not None
    if state.ref_pointer is not Pointer.OK:
        raise CannotGoOn(f"ref_count is {pointer_name(state.ref_pointer)}")
    if state.list_pointer is not Pointer.OK:
        ends = (
            "never comes back" if state.list_pointer is Pointer.SHARED else f"meets {pointer_name(state.list_pointer)}"
        )
        raise CannotGoOn(f"the walk along next from active_seqs {ends}")
    engine = Engine(pool.memory, pool.pool_bytes // BLOCK_SIZE, number)
    engine.total_local_blocks = state.total_local_blocks
    engine.free_local_blocks = state.free_local_blocks
    engine.ref_count = state.ref_count[:]
    for sequence in state.sequences:
        if sequence.seq_id in engine.active_seqs:
            raise CannotGoOn(f"two sequences have the id {sequence.seq_id}")
        _restore(sequence, engine)
    return engine


def _restore(state: SequenceState, engine: Engine) -> None:
    """Take over what can be read. A slot that leads nowhere counts as NULL, an entry that is no block as -1.

    Those places stay different from what they should be, so they are still judged; but one bad table does not end
    the case for everything else.
    """
    if state.kv_count < 0:
        raise CannotGoOn(f"kv_count of sequence {state.seq_id} is {state.kv_count}")
    if not state.table.readable:
        raise CannotGoOn(f"block_table of sequence {state.seq_id} is {pointer_name(state.table)}")
    sequence = engine.sequences.append(state.seq_id, state.kv_count, [])
    blocks = len(engine.ref_count)
    for slot, table in enumerate(state.tables):
        if table is not None:
            valid = (block if UNMAPPED <= block < blocks else UNMAPPED for block in table)
            sequence.hang(slot, array("i", valid))
