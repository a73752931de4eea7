"""What one call did: the blocks that it took, the pool words that it wrote, the bytes that it may touch."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.model import Access, Span
from grader.labs.paged_kv.judging.situations import situation, with_situation
from reference.operation import Operation, Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, MAX_LOGICAL_BLOCKS
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
    allowed: tuple[Span, ...] = ()
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
    store = Span(target, stored * KV_SIZE, KV_SIZE, Access.WRITE)
    if new == old:
        return Effects(reply, stored=stored, allowed=(store,))
    if old == UNMAPPED:
        return Effects(reply, (new,), seq_id, logical, stored, allowed=(store,))
    copy = Span(target, new * BLOCK_SIZE, BLOCK_SIZE, Access.WRITE)
    source = Span(target, old * BLOCK_SIZE, BLOCK_SIZE, Access.READ)
    return Effects(reply, (new,), seq_id, logical, stored, copied=(old, new), allowed=(copy, source))


def _next_record(engine: Engine | None, operation: Operation) -> tuple[int, int, int]:
    """Logical block, offset and physical block of the record that an append stores, before it does."""
    sequence = engine.find(operation.numbers[0]) if engine is not None and operation.name == "append_kv" else None
    if sequence is None:
        return 0, 0, UNMAPPED
    logical, offset = divmod(sequence.kv_count, KV_PER_BLOCK)
    return logical, offset, sequence.block_at(logical) if logical < MAX_LOGICAL_BLOCKS else UNMAPPED
