"""What a call came to, as the grader needs it; derived from the engine's state before and after the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reference.model import Access, Span
from reference.operation import Operation, Reply
from reference.paged_kv.circumstances import circumstances, explained
from reference.paged_kv.engine import Engine
from reference.paged_kv.sequence import UNMAPPED
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, MAX_LOGICAL_BLOCKS

__all__ = ["Outcome", "call"]

_CALLS: dict[str, Callable[..., Reply]] = {
    "create_sequence": Engine.create_sequence,
    "free_sequence": Engine.free_sequence,
    "fork_sequence": Engine.fork_sequence,
    "append_kv": Engine.append_kv,
    "llm_destroy": Engine.llm_destroy,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call returned, which blocks it took, and what it did to the pool."""

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


def call(engine: Engine, operation: Operation) -> Outcome:
    """Do a call on its engine."""
    words = frozenset(circumstances(engine, operation))
    arguments: tuple[Any, ...] = operation.arguments
    if operation.name == "append_kv":
        return _append(engine, operation, words)
    reply = explained(_CALLS[operation.name](engine, *arguments), words)
    if operation.name != "create_sequence" or reply.refused:
        return Outcome(reply)
    return Outcome(reply, tuple(engine.active_seqs[-1].mapped_blocks()), seq_id=arguments[0])


def _append(engine: Engine, operation: Operation, words: frozenset[str]) -> Outcome:
    arguments: tuple[Any, ...] = operation.arguments
    seq_id, kv_data = arguments
    sequence = engine.find(seq_id)
    logical, offset = divmod(sequence.kv_count, KV_PER_BLOCK) if sequence is not None else (0, 0)
    old = sequence.block_at(logical) if sequence is not None and logical < MAX_LOGICAL_BLOCKS else UNMAPPED
    reply = explained(engine.append_kv(seq_id, kv_data), words)
    if reply.refused or sequence is None:
        return Outcome(reply)

    new = sequence.block_at(logical)
    stored = new * KV_PER_BLOCK + offset
    store = Span(operation.target or 1, stored * KV_SIZE, KV_SIZE, Access.WRITE)
    if new == old:
        return Outcome(reply, stored=stored, allowed=(store,))
    if old == UNMAPPED:
        return Outcome(reply, (new,), seq_id, logical, stored, allowed=(store,))
    copy = Span(store.target, new * BLOCK_SIZE, BLOCK_SIZE, Access.WRITE)
    source = Span(store.target, old * BLOCK_SIZE, BLOCK_SIZE, Access.READ)
    return Outcome(reply, (new,), seq_id, logical, stored, copied=(old, new), allowed=(copy, source))
