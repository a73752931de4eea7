"""The state from which the next call of a program is judged, recovered from what the program left.

What is impossible (a negative kv_count, an entry that is no block, a table or a list that cannot be read) is replaced
by what the oracle has in its place: it was wrong when the program left it so, and the case goes on for everything else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from operator import is_

from grader.labs.paged_kv.judging.describe import pointer_name
from grader.labs.paged_kv.judging.record import EngineState, Pointer, RecordState, SequenceState, Slot
from reference.oracle import CannotGoOn
from reference.paged_kv.constants import BLOCK_SIZE
from reference.paged_kv.engine import Engine
from reference.paged_kv.sequence import UNMAPPED


class RecoveredEngine(Engine):
    """An engine in a state that a program left, where counts may contradict each other."""

    def __init__(self, pool: memoryview, blocks: int, choice: list[int] | None = None) -> None:
        """`choice` are the blocks that the program took in this call, in the place of the first free ones."""
        super().__init__(pool, blocks)
        self.choice = choice

    def first_fit(self, needed: int) -> list[int]:
        """As in `Engine`. Raises `CannotGoOn` when fewer blocks are free than the program counts."""
        blocks = super().first_fit(needed) if self.choice is None else self.choice
        if len(blocks) < needed:
            raise CannotGoOn("free_local_blocks is above 0, but no block has ref_count 0")
        return blocks


def repaired(state: RecordState, fallback: RecordState | None) -> RecordState:
    """Return a program's state with impossible values replaced by those of `fallback`; the same object if none was.

    `fallback` is what the oracle had in its place, None if that is unknown. Raises `CannotGoOn` when something is
    impossible and nothing is known to replace it.
    """
    slots = list(map(_slot, state.slots, _fallbacks(state, fallback)))
    return state if all(map(is_, slots, state.slots)) else replace(state, slots=slots)


def recounted(state: RecordState | None, fallback: RecordState | None) -> RecordState | None:
    """Return a repaired state with the fallback's count wherever the program's is negative.

    Whether such a block is free is unknown, so this is done only when nothing follows from the program's counts.
    """
    if state is None:
        return None
    slots = list(map(_recounted, state.slots, _fallbacks(state, fallback)))
    return replace(state, slots=slots)


def _fallbacks(state: RecordState, fallback: RecordState | None) -> Iterator[EngineState | None]:
    """For each slot the fallback's engine over a pool of the same size."""
    for slot, right in zip(state.slots, fallback.slots if fallback is not None else state.slots, strict=True):
        yield right.engine if fallback is not None and right.pool_bytes == slot.pool_bytes else None


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
    possible = state.ref_pointer is state.list_pointer is Pointer.OK
    if possible and len(sequences) == len(state.sequences) and all(map(is_, sequences, state.sequences)):
        return slot
    engine = replace(state, ref_pointer=Pointer.OK, ref_count=ref_count, list_pointer=Pointer.OK, sequences=sequences)
    return replace(slot, engine=engine)


def _sequences(state: EngineState, right: EngineState | None, blocks: int) -> Iterator[SequenceState]:
    """The sequences in the order of the list; of a list that cannot be, those of it that should be there.

    What the list does not lead to cannot be looked at: such a sequence counts as missing.
    """
    by_id = {sequence.seq_id: sequence for sequence in reversed(state.sequences)}
    wanted = {sequence.seq_id: sequence for sequence in right.sequences} if right is not None else {}
    in_order = [sequence.seq_id for sequence in state.sequences]
    if state.list_pointer is not Pointer.OK or len(by_id) < len(in_order):
        if right is None:
            raise CannotGoOn(_what_is_wrong_with_the_list(state))
        in_order = [seq_id for seq_id in wanted if seq_id in by_id]
    for seq_id in in_order:
        sequence, known = by_id[seq_id], wanted.get(seq_id)
        if known is None and not _is_possible(sequence):
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


def _is_possible(state: SequenceState) -> bool:
    return state.kv_count >= 0 and state.table.readable


def _sequence(state: SequenceState, right: SequenceState | None, blocks: int) -> SequenceState:
    """Return the sequence with unreadable tables and ids out of range replaced; unknown entries become -1."""
    if right is not None and not state.table.readable:
        state = replace(state, table=Pointer.OK, l1=right.l1, tables=right.tables)
    if right is not None and state.kv_count < 0:
        state = replace(state, kv_count=right.kv_count)
    wanted = right.tables if right is not None else [None] * len(state.tables)
    tables = list(map(_table, state.l1, state.tables, wanted, [blocks] * len(wanted)))
    if all(table is left for table, left in zip(tables, state.tables, strict=True)):
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
