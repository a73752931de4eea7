"""The circumstances of a call: words by which a diagnosis knows a situation again, from the state before the call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from reference.operation import Operation, Reply
from reference.paged_kv.engine import Engine
from reference.paged_kv.sequence import UNMAPPED, Sequence
from reference.paged_kv.words import KV_PER_BLOCK, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

__all__ = ["circumstances", "explained"]

_WHY_REFUSED = {
    "Constraint 1/null-engine": "null-engine",
    "Task 1/null-pool": "null-pool",
    "Task 1/small-pool": "small-pool",
    "Task 2/length": "bad-length",
    "Task 2/unique-id": "id-taken",
    "Task 2/too-long": "too-long",
    "Task 2/no-room": "none-free",
    "Task 2/free-unknown": "unknown-id",
    "Task 3/parent": "unknown-id",
    "Task 3/unique-id": "id-taken",
    "Task 4/unknown": "unknown-id",
    "Task 4/full": "sequence-full",
}
"""The one circumstance of a refused call, by the clause that refused it. "Task 4/oom" has those of an append."""


def explained(reply: Reply, words: frozenset[str] = frozenset()) -> Reply:
    """The reply with its circumstances; `words` are those of the state before the call."""
    why = _WHY_REFUSED.get(reply.clause) if reply.refused else None
    return replace(reply, circumstances=frozenset({why}) if why is not None else words)


def circumstances(engine: Engine, operation: Operation) -> Iterator[str]:
    """The words for a call on this engine that is accepted, or refused for want of a block."""
    arguments: tuple[Any, ...] = operation.arguments
    sequence = engine.find(arguments[0]) if arguments else None
    if operation.name == "llm_destroy" and engine.active_seqs:
        yield "live-sequences"
        yield from _released(engine, engine.active_seqs)
    elif operation.name == "free_sequence" and sequence is not None:
        yield from _released(engine, [sequence])
    elif operation.name == "fork_sequence" and sequence is not None:
        yield from _tables(sequence)
        if engine.free_local_blocks == 0:
            yield "none-free"
    elif operation.name == "append_kv" and sequence is not None:
        yield from _append(engine, sequence)


def _released(engine: Engine, sequences: list[Sequence]) -> Iterator[str]:
    """Whether blocks of these sequences become free when they are released, and whether others stay in use."""
    left = engine.ref_count[:]
    for sequence in sequences:
        yield from _tables(sequence)
        for block in sequence.mapped_blocks():
            left[block] -= 1
            yield "still-shared" if left[block] else "last-reference"


def _tables(sequence: Sequence) -> Iterator[str]:
    """What is unusual in the tables: NULL before an L2 table, or -1 before a mapped entry or alone in an L2 table."""
    l2_tables = [l2_table for l2_table in sequence.block_table if l2_table is not None]
    if None in sequence.block_table[: len(l2_tables)]:
        yield "holes"
    if not all(map(_is_mapped_from_the_left, l2_tables)):
        yield "unmapped-entries"


def _is_mapped_from_the_left(l2_table: list[int]) -> bool:
    """Whether the first entry is mapped, and no entry is mapped behind one that is not."""
    mapped = L2_PT_SIZE - l2_table.count(UNMAPPED)
    return mapped > 0 and UNMAPPED not in l2_table[:mapped]


def _append(engine: Engine, sequence: Sequence) -> Iterator[str]:
    logical, offset = divmod(sequence.kv_count, KV_PER_BLOCK)
    if logical >= MAX_LOGICAL_BLOCKS:
        return
    block = sequence.block_at(logical)
    if block == UNMAPPED:
        yield "new-page"
        if sequence.block_table[logical // L2_PT_SIZE] is None:
            yield "l2-missing"
        if offset:
            yield "mid-block"
    else:
        yield "in-place" if engine.ref_count[block] <= 1 else "copy-on-write"
    if engine.free_local_blocks == 0:
        yield "none-free"
