"""The situation of a call, in words, from the state before it.

A known mistake names the words that it needs, and a diagnosis looks for what all wrong calls share. The words are part
of the oracle's reply (`Reply.circumstances`), so those of a case are stored with what the oracle does in it. The
sentence for each stands in the handout.toml of the cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from reference.operation import Operation, Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, L2_PT_SIZE, MAX_LOGICAL_BLOCKS
from reference.paged_kv.engine import Engine
from reference.paged_kv.sequence import UNMAPPED, Sequence

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
"""The word for the reason of a refusal, by the clause that refused. "Task 4/oom" has the words of the work instead."""

_IDS = {"create_sequence": 1, "free_sequence": 1, "append_kv": 1, "fork_sequence": 2}
"""How many of a call's first arguments are ids."""

MAKERS = frozenset({"create_sequence", "fork_sequence"})
"""The calls that make a sequence; the last of their ids is the new one."""


def ids_of(operation: Operation) -> tuple[int, ...]:
    """Return the ids of sequences that a call names; none for a poke."""
    return operation.numbers[: _IDS.get(operation.name, 0)]


def situation(engine: Engine | None, operation: Operation) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words for a call on this engine, and those that count only if it is not refused for its arguments."""
    if operation.name == "llm_init":
        return frozenset(_init(operation.numbers[-1])), frozenset()
    if engine is None:
        return frozenset(), frozenset()
    return frozenset(_call(engine, operation)), frozenset(_work(engine, operation))


def with_situation(reply: Reply, call: frozenset[str], work: frozenset[str]) -> Reply:
    """Return the reply with the words of the `situation` of its call."""
    why = _WHY_REFUSED.get(reply.clause) if reply.refused else None
    return replace(reply, circumstances=call | ({why} if why is not None else work))


def _call(engine: Engine, operation: Operation) -> Iterator[str]:
    yield from _crowd(len(engine.active_seqs))
    ids = ids_of(operation)
    yield from ("id-zero" if number == 0 else "id-negative" for number in ids if number <= 0)
    if len(ids) > len(set(ids)):
        yield "onto-itself"
    if ids:
        yield from _compared(engine, ids[0])
    if operation.name in MAKERS and engine.find(ids[-1]) is not None:
        yield from (word.replace("listed", "taken") for word in _listed(engine, ids[-1]))
    sequence = engine.find(ids[0]) if ids else None
    if operation.name == "create_sequence":
        yield from _create(engine, operation.numbers[1])
    elif sequence is not None:
        yield from _of(operation, engine, sequence)


def _of(operation: Operation, engine: Engine, sequence: Sequence) -> Iterator[str]:
    """A call for a sequence that is there: of a fork the parent."""
    blocks = sequence.mapped_blocks()
    yield from _listed(engine, sequence.seq_id)
    yield from _length(len(blocks), sequence.kv_count)
    if 0 in blocks:
        yield "block-zero"
    if any(engine.ref_count[block] > 1 for block in blocks):
        yield "shared-already"
    if operation.name == "fork_sequence" and len(blocks) > engine.free_local_blocks:
        yield "fewer-free"
    if operation.name == "append_kv":
        if operation.numbers[1] < 0:
            yield "data-negative"
        yield from _append(engine, sequence)


def _compared(engine: Engine, seq_id: int) -> Iterator[str]:
    if any(other.seq_id > seq_id for other in engine.active_seqs):
        yield "larger-id"
    if any(other.seq_id < seq_id for other in engine.active_seqs):
        yield "smaller-id"


def _init(pool_size: int) -> Iterator[str]:
    if pool_size == BLOCK_SIZE:
        yield "smallest-pool"
    if pool_size % BLOCK_SIZE:
        yield "ragged-pool"


def _crowd(sequences: int) -> Iterator[str]:
    yield "some-sequence" if sequences else "no-sequence"
    if sequences > 1:
        yield "several-sequences"


def _create(engine: Engine, length: int) -> Iterator[str]:
    if length <= 0:
        yield "length-negative" if length else "length-zero"
        return
    needed = (length + KV_PER_BLOCK - 1) // KV_PER_BLOCK
    if needed == engine.free_local_blocks:
        yield "exact-fit"
    if needed == MAX_LOGICAL_BLOCKS:
        yield "max-length"
    yield from _length(needed, length)
    yield from _gap(engine)


def _length(blocks: int, kv_count: int) -> Iterator[str]:
    if blocks > L2_PT_SIZE:
        yield "several-tables"
    yield "several-blocks" if blocks > 1 else "one-block"
    yield "part-block" if kv_count % KV_PER_BLOCK else "whole-blocks"


def _gap(engine: Engine) -> Iterator[str]:
    counts = engine.ref_count
    if 0 in counts and any(counts[counts.index(0) :]):
        yield "gap-below"


def _append(engine: Engine, sequence: Sequence) -> Iterator[str]:
    logical, offset = divmod(sequence.kv_count, KV_PER_BLOCK)
    yield "offset-inside" if offset else "offset-zero"
    if logical >= MAX_LOGICAL_BLOCKS:
        return
    if logical == MAX_LOGICAL_BLOCKS - 1:
        yield "last-logical-block"
    if logical >= L2_PT_SIZE:
        yield "second-table"
    block = sequence.block_at(logical)
    users = engine.ref_count[block] if block != UNMAPPED else 0
    if users > 2:
        yield "three-users"
    if users != 1:
        yield from _gap(engine)
        if engine.free_local_blocks == 1:
            yield "last-free-block"


def _listed(engine: Engine, seq_id: int) -> Iterator[str]:
    ids = [sequence.seq_id for sequence in engine.active_seqs]
    place, last = ids.index(seq_id), len(ids) - 1
    yield "listed-not-first" if place else "listed-first"
    yield "listed-not-last" if place < last else "listed-last"
    if not last:
        yield "listed-only"
    elif 0 < place < last:
        yield "listed-middle"


def _work(engine: Engine, operation: Operation) -> Iterator[str]:
    """The words for a call that is accepted, or refused for want of a block."""
    ids = ids_of(operation)
    sequence = engine.find(ids[0]) if ids else None
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
        yield from _path(engine, sequence)


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


def _path(engine: Engine, sequence: Sequence) -> Iterator[str]:
    """Which of its three ways an append goes."""
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
