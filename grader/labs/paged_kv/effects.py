"""The situation of a call, and its effects: the blocks it took, the word it stored, the bytes that it may touch.

A known mistake names the words of the situation that it needs, and a diagnosis looks for words that all wrong calls
share. The words are part of the oracle's reply (`Reply.circumstances`), so they are stored with what a case expects.
The sentence for each word is in the handout.toml of the cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

from grader.core.judgement import Difference
from grader.core.model import Access, MemorySpan
from grader.labs.paged_kv.states import State, entry_name
from reference.operation import Operation, Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS
from reference.paged_kv.engine import Engine
from reference.paged_kv.oracle import PagedKV
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
"""The word for the reason of a refusal, by the clause that refused. "Task 4/oom" has the words of `_work` instead."""

_IDS = {"create_sequence": 1, "free_sequence": 1, "append_kv": 1, "fork_sequence": 2}
"""The number of a call's arguments, from the first on, that are ids."""

MAKERS = frozenset({"create_sequence", "fork_sequence"})
"""The calls that make a sequence; the last of their ids is the new one."""


def ids_of(operation: Operation) -> tuple[int, ...]:
    """Return the ids of sequences that a call names; () for a poke."""
    return operation.numbers[: _IDS.get(operation.name, 0)]


def situation(engine: Engine | None, operation: Operation) -> tuple[frozenset[str], frozenset[str]]:
    """Return the words that hold for a call, and those that hold only if it is not refused for its arguments."""
    if operation.name == "llm_init":
        return frozenset(_init(operation.numbers[-1])), frozenset()
    if engine is None:
        return frozenset(), frozenset()
    return frozenset(_call(engine, operation)), frozenset(_work(engine, operation))


def with_situation(reply: Reply, call: frozenset[str], work: frozenset[str]) -> Reply:
    """Return the reply with words for its situation: of the call, and why it was refused or what it did (`work`)."""
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
    """Yield the words for a call on an existing sequence; for a fork it is the parent."""
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
    """Yield the words for a call that is accepted, or refused because blocks are missing."""
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
    """Yield words for whether blocks of these sequences become free on release, and whether some stay in use."""
    left = engine.ref_count[:]
    for sequence in sequences:
        yield from _tables(sequence)
        for block in sequence.mapped_blocks():
            left[block] -= 1
            yield "still-shared" if left[block] else "last-reference"


def _tables(sequence: Sequence) -> Iterator[str]:
    """Yield words for unusual tables: NULL before an L2 table, or -1 before a mapped entry or in all entries."""
    l2_tables = [l2_table for l2_table in sequence.block_table if l2_table is not None]
    if None in sequence.block_table[: len(l2_tables)]:
        yield "holes"
    if not all(map(_is_mapped_from_the_left, l2_tables)):
        yield "unmapped-entries"


def _is_mapped_from_the_left(l2_table: list[int]) -> bool:
    """Return whether the first entry is mapped, and no entry after an unmapped one is mapped."""
    mapped = L2_PT_SIZE - l2_table.count(UNMAPPED)
    return mapped > 0 and UNMAPPED not in l2_table[:mapped]


def _path(engine: Engine, sequence: Sequence) -> Iterator[str]:
    """Yield words for where an append stores (new block, own block, copy), and for what makes the call unusual."""
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


@dataclass(frozen=True, slots=True)
class Effects:
    """The reply of a call or poke, and what it did."""

    reply: Reply
    taken: tuple[int, ...] = ()
    """The blocks that the call took, in order."""
    seq_id: int = 0
    logical: int = 0
    """The first block taken is this logical block of sequence `seq_id`; the others follow."""
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
    """Return logical block, offset and physical block where an append will store its record."""
    sequence = engine.find(operation.numbers[0]) if engine is not None and operation.name == "append_kv" else None
    if sequence is None:
        return 0, 0, UNMAPPED
    logical, offset = divmod(sequence.kv_count, KV_PER_BLOCK)
    return logical, offset, sequence.block_at(logical) if logical < MAX_LOGICAL_BLOCKS else UNMAPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChoice:
    """The blocks that a program took in a call instead of the first free blocks."""

    blocks: tuple[int, ...]
    could_be: bool
    """Whether all of these blocks were free. Then everything else can be judged with this choice."""
    difference: Difference
    seq_id: int
    logical: int
    right: int
    """The right block for logical block `logical` of sequence `seq_id`; the difference names only this entry."""

    def corrected(self, state: State, number: int) -> State:
        """Return a copy of a state in which engine `number` has the right block in the entry of the difference."""
        corrected = deepcopy(state)
        l1, l2 = divmod(self.logical, L2_PT_SIZE)
        corrected[str(number)]["engine"]["sequences"][str(self.seq_id)]["block_table"][l1][l2] = self.right
        return corrected


def own_choice(effects: Effects, before: State, after: State) -> BlockChoice | None:
    """Return the blocks that a program took in a call, if the oracle took others.

    A block in use counts as taken, and an id that is no block counts if `free_local_blocks` fell. Returns None if the
    program took the first free blocks, or no block: other facets then judge the entries of its tables.
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
    """Return whether a block is in use; True if the program's array cannot be read."""
    return not _is_block(block, state) or state["ref_count"][block] != 0


def _mapped(effects: Effects, state: State) -> tuple[int, ...] | None:
    """Return the program's entries at the places of the taken blocks; None if one of them cannot be read."""
    tables = entries_of(state["sequences"].get(str(effects.seq_id)))
    places = [divmod(effects.logical + number, L2_PT_SIZE) for number, _ in enumerate(effects.taken)]
    if not all(l1 < len(tables) and tables[l1] for l1, _ in places):
        return None
    return tuple(tables[l1][l2] for l1, l2 in places)


def entries_of(sequence: State | None) -> list[list[int]]:
    """Return the entries of each L2 table; [] for a table that is NULL or cannot be read."""
    tables = sequence["block_table"] if sequence is not None else ()
    return [table if isinstance(table, list) else [] for table in tables] if isinstance(tables, list) else []
