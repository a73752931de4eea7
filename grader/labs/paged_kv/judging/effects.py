"""What one call did: the blocks that it took, the pool words that it wrote, the bytes that it may touch."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from grader.core.judgement import Difference
from grader.core.model import Access, MemorySpan
from grader.labs.paged_kv.judging.names import entry_name
from grader.labs.paged_kv.judging.recovery import State
from grader.labs.paged_kv.judging.situations import situation, with_situation
from reference.operation import Operation, Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS
from reference.paged_kv.engine import Engine
from reference.paged_kv.oracle import PagedKV
from reference.paged_kv.sequence import UNMAPPED


@dataclass(frozen=True, slots=True)
class Effects:
    """The reply of a call or poke, and what it did."""

    reply: Reply
    taken: tuple[int, ...] = ()
    """The blocks, in the order in which they were taken."""
    seq_id: int = 0
    logical: int = 0
    """The first block taken is this logical block of that sequence; the others follow it."""
    stored: int | None = None
    """The word of the pool where kv_data went (Part 2.1: one int of 4 bytes)."""
    copied: tuple[int, int] | None = None
    """(old block, new block) of a copy-on-write."""
    allowed: tuple[MemorySpan, ...] = ()
    """The only bytes of the pool that the call may touch (Global Constraint 4)."""


def apply(oracle: PagedKV, operation: Operation) -> Effects:
    """Do one operation and return its effects. Raises what the oracle raises."""
    engine = oracle.engines.get(operation.target)
    words = situation(engine, operation)
    logical, offset, old = _next_record(engine, operation)
    reply = with_situation(oracle.apply(operation), *words)
    if engine is None or reply.refused or operation.name not in ("create_sequence", "append_kv"):
        return Effects(reply)
    seq_id = operation.numbers[0]
    sequence = engine.find(seq_id)
    assert sequence is not None
    if operation.name == "create_sequence":
        return Effects(reply, tuple(sequence.mapped_blocks()), seq_id)

    new, target = sequence.block_at(logical), operation.target or 1
    stored = new * KV_PER_BLOCK + offset
    store = MemorySpan(target, stored * KV_SIZE, KV_SIZE, Access.WRITE)
    if new == old:
        return Effects(reply, stored=stored, allowed=(store,))
    if old == UNMAPPED:
        return Effects(reply, (new,), seq_id, logical, stored, allowed=(store,))
    copy = MemorySpan(target, new * BLOCK_SIZE, BLOCK_SIZE, Access.WRITE)
    source = MemorySpan(target, old * BLOCK_SIZE, BLOCK_SIZE, Access.READ)
    return Effects(reply, (new,), seq_id, logical, stored, copied=(old, new), allowed=(copy, source))


def _next_record(engine: Engine | None, operation: Operation) -> tuple[int, int, int]:
    """Logical block, offset and physical block of the record that an append stores, before it does."""
    sequence = engine.find(operation.numbers[0]) if engine is not None and operation.name == "append_kv" else None
    if sequence is None:
        return 0, 0, UNMAPPED
    logical, offset = divmod(sequence.kv_count, KV_PER_BLOCK)
    return logical, offset, sequence.block_at(logical) if logical < MAX_LOGICAL_BLOCKS else UNMAPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChoice:
    """What a program took in a call in the place of the first free blocks."""

    blocks: tuple[int, ...]
    could_be: bool
    """Were all of them free? Then everything else follows from this choice."""
    difference: Difference
    seq_id: int
    logical: int
    right: int
    """The block that belongs at this logical block of that sequence: the difference names this entry alone."""

    def corrected(self, state: State, number: int) -> State:
        """Return a state in which engine `number` has the right block in that entry, and all else as it is."""
        corrected = deepcopy(state)
        l1, l2 = divmod(self.logical, L2_PT_SIZE)
        corrected[str(number)]["engine"]["sequences"][str(self.seq_id)]["block_table"][l1][l2] = self.right
        return corrected


def own_choice(effects: Effects, before: State, after: State) -> BlockChoice | None:
    """What a program took in a call, if it is not what the oracle took.

    A block in use counts, and so does what is no block where the call counted one. None when the first free blocks
    were taken, or none at all: that the tables map something else then is another matter.
    """
    blocks = _mapped(effects, after)
    if blocks is None or blocks == effects.taken:
        return None
    could_be = len(set(blocks)) == len(blocks) and all(
        _is_block(block, before) and before["ref_count"][block] == 0 and _is_used(block, after) for block in blocks
    )
    if not could_be and isinstance(after["ref_count"], list) and all(_is_used(block, after) for block in effects.taken):
        return None
    counted = before["free_local_blocks"] - after["free_local_blocks"] == len(blocks)
    for place, (want, took) in enumerate(zip(effects.taken, blocks, strict=True)):
        was_taken = _is_used(took, after) if _is_block(took, before) else counted
        if took != want and was_taken and not (effects.copied and took == effects.copied[0]):
            return BlockChoice(
                blocks=blocks,
                could_be=could_be,
                difference=_difference(effects, place, took),
                seq_id=effects.seq_id,
                logical=effects.logical + place,
                right=want,
            )
    return None


def _difference(effects: Effects, place: int, took: int) -> Difference:
    l1, l2 = divmod(effects.logical + place, L2_PT_SIZE)
    return Difference(
        facet="choice",
        field=f"the block taken for logical block {effects.logical + place} of sequence {effects.seq_id}",
        expected=f"block {effects.taken[place]}, the first with ref_count 0",
        actual=f"block {took}",
        tags=frozenset([*(["copy-on-write"] if effects.copied else []), *(["no-block"] if took < 0 else [])]),
        place=entry_name(effects.seq_id, l1, l2),
    )


def _is_block(block: int, state: State) -> bool:
    return isinstance(state["ref_count"], list) and 0 <= block < len(state["ref_count"])


def _is_used(block: int, state: State) -> bool:
    """Is it in use, as far as the program's array can be read?"""
    return not _is_block(block, state) or state["ref_count"][block] != 0


def _mapped(effects: Effects, state: State) -> tuple[int, ...] | None:
    """What the tables have where the blocks of these effects belong; None when one of them cannot be read."""
    tables = entries_of(state["sequences"].get(str(effects.seq_id)))
    places = [divmod(effects.logical + number, L2_PT_SIZE) for number, _ in enumerate(effects.taken)]
    if not all(l1 < len(tables) and tables[l1] for l1, _ in places):
        return None
    return tuple(tables[l1][l2] for l1, l2 in places)


def entries_of(sequence: State | None) -> list[list[int]]:
    """The entries of each L2 table, none where it is NULL or cannot be read."""
    tables = sequence["block_table"] if sequence is not None else ()
    return [table if isinstance(table, list) else [] for table in tables] if isinstance(tables, list) else []
