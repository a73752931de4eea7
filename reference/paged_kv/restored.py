"""Engines taken over from what a program left: the state from which its next call is judged.

What cannot be (a negative kv_count, an entry that is no block, a table or a list that cannot be read) counts as what
the reference has in its place: it was wrong when the program left it so, and the case goes on for everything else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from operator import is_

from reference.model import CannotGoOn
from reference.paged_kv.engine import Engine
from reference.paged_kv.pool import Pool
from reference.paged_kv.readable import pointer_name
from reference.paged_kv.record import EngineState, Pointer, RecordState, SequenceState, Slot
from reference.paged_kv.sequence import UNMAPPED, Sequence
from reference.paged_kv.words import BLOCK_SIZE

__all__ = ["TakenOver", "believed", "recounted", "restored_engine"]


class TakenOver(Engine):
    """An engine in a state that a program left, where counts may contradict each other."""

    choice: list[int] | None = None
    """The blocks that the program took in this call, in the place of the first free ones."""

    def first_fit(self, needed: int) -> list[int]:
        """As in `Engine`. Raises `CannotGoOn` when fewer blocks are free than the program counts."""
        blocks = super().first_fit(needed) if self.choice is None else self.choice
        if len(blocks) < needed:
            raise CannotGoOn("free_local_blocks is above 0, but no block has ref_count 0")
        return blocks


def restored_engine(slot: Slot, pool: Pool) -> TakenOver:
    """The engine of a slot with a `believed` one, over a pool of its own."""
    state = slot.engine
    assert state is not None
    engine = TakenOver(pool.memory, pool.pool_bytes // BLOCK_SIZE)
    engine.total_local_blocks = state.total_local_blocks
    engine.free_local_blocks = state.free_local_blocks
    engine.ref_count = list(state.ref_count)
    for left in state.sequences:
        sequence = Sequence(left.seq_id, left.kv_count)
        sequence.block_table = [None if l2_table is None else list(l2_table) for l2_table in left.tables]
        engine.active_seqs.append(sequence)
    return engine


def believed(state: RecordState, right: RecordState | None) -> RecordState:
    """The state that a program left, as it can be; the very same one where all of it can be.

    `right` is what the reference had in its place, None where nobody knows. Raises `CannotGoOn` when something cannot
    be and nothing is known to take instead.
    """
    slots = list(map(_slot, state.slots, _references(state, right)))
    return state if all(map(is_, slots, state.slots)) else replace(state, slots=slots)


def recounted(state: RecordState | None, right: RecordState | None) -> RecordState | None:
    """The believed state with the reference's count wherever the program's is negative.

    Nobody can say whether such a block is free, so it is asked only when nothing follows from the program's counts.
    """
    if state is None:
        return None
    slots = list(map(_recounted, state.slots, _references(state, right)))
    return replace(state, slots=slots)


def _references(state: RecordState, right: RecordState | None) -> Iterator[EngineState | None]:
    """For each slot the reference's engine over a pool of the same size."""
    for slot, other in zip(state.slots, right.slots if right is not None else state.slots, strict=True):
        yield other.engine if right is not None and other.pool_bytes == slot.pool_bytes else None


def _recounted(slot: Slot, right: EngineState | None) -> Slot:
    state = slot.engine
    if state is None or right is None:
        return slot
    counts = zip(state.ref_count, right.ref_count, strict=True)
    ref_count = array("i", (there if here < 0 else here for here, there in counts))
    return replace(slot, engine=replace(state, ref_count=ref_count))


def _slot(slot: Slot, right: EngineState | None) -> Slot:
    state = slot.engine
    if state is None:
        return slot
    ref_count = state.ref_count
    if state.ref_pointer is not Pointer.OK:
        if right is None:
            raise CannotGoOn(f"ref_count is {pointer_name(state.ref_pointer)}")
        ref_count = right.ref_count
    sequences = list(_sequences(state, right, slot.pool_bytes // BLOCK_SIZE))
    believable = state.ref_pointer is state.list_pointer is Pointer.OK
    if believable and len(sequences) == len(state.sequences) and all(map(is_, sequences, state.sequences)):
        return slot
    engine = replace(state, ref_pointer=Pointer.OK, ref_count=ref_count, list_pointer=Pointer.OK, sequences=sequences)
    return replace(slot, engine=engine)


def _sequences(state: EngineState, right: EngineState | None, blocks: int) -> Iterator[SequenceState]:
    """The sequences in the order of the list; of a list that cannot be, those of it that should be there.

    What the list does not lead to cannot be looked at: such a sequence counts as missing.
    """
    found = {sequence.seq_id: sequence for sequence in reversed(state.sequences)}
    wanted = {sequence.seq_id: sequence for sequence in right.sequences} if right is not None else {}
    in_order = [sequence.seq_id for sequence in state.sequences]
    if state.list_pointer is not Pointer.OK or len(found) < len(in_order):
        if right is None:
            raise CannotGoOn(_what_is_wrong_with_the_list(state))
        in_order = [seq_id for seq_id in wanted if seq_id in found]
    for seq_id in in_order:
        sequence, known = found[seq_id], wanted.get(seq_id)
        if known is None and not _can_be(sequence):
            if right is None:
                raise CannotGoOn(f"sequence {seq_id} has a negative kv_count or a block_table that cannot be read")
            continue  # a call that had to fail made it
        yield _sequence(sequence, known, blocks)


def _what_is_wrong_with_the_list(state: EngineState) -> str:
    if state.list_pointer is Pointer.SHARED:
        return "the walk along next from active_seqs never comes back"
    if state.list_pointer is not Pointer.OK:
        return f"the walk along next from active_seqs meets {pointer_name(state.list_pointer)}"
    ids = [sequence.seq_id for sequence in state.sequences]
    twice = next(seq_id for seq_id in ids if ids.count(seq_id) > 1)
    return f"two sequences have the id {twice}"


def _can_be(state: SequenceState) -> bool:
    return state.kv_count >= 0 and state.table.readable


def _sequence(state: SequenceState, right: SequenceState | None, blocks: int) -> SequenceState:
    """One sequence, the very same where it can be as it is; a slot or an entry that nobody knows is unused."""
    if right is not None and not state.table.readable:
        state = replace(state, table=Pointer.OK, l1=right.l1, tables=right.tables)
    if right is not None and state.kv_count < 0:
        state = replace(state, kv_count=right.kv_count)
    wanted = right.tables if right is not None else [None] * len(state.tables)
    tables = list(map(_table, state.l1, state.tables, wanted, [blocks] * len(wanted)))
    if all(one is other for one, other in zip(tables, state.tables, strict=True)):
        return state
    l1 = [Pointer.NULL if table is None else Pointer.OK for table in tables]
    return replace(state, l1=l1, tables=tables)


def _table(pointer: Pointer, table: array[int] | None, right: array[int] | None, blocks: int) -> array[int] | None:
    if table is None:
        return None if pointer is Pointer.NULL else right
    if min(table) >= UNMAPPED and max(table) < blocks:
        return table
    known = right if right is not None else [UNMAPPED] * len(table)
    return array("i", (here if UNMAPPED <= here < blocks else there for here, there in zip(table, known, strict=True)))
