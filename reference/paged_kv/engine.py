"""The six calls of the handout, in handout order; each check with the clause that demands it.

Every call is three paragraphs: basic and id checks, the probe for free blocks, then the change
(Global Constraint 2, "check before allocate").
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

from reference.model import CannotGoOn
from reference.operation import Reply
from reference.paged_kv.sequence import UNMAPPED, Place, Sequence
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, MAX_LOGICAL_BLOCKS

__all__ = ["NO_EFFECT", "Effect", "Engine", "first_fit", "llm_init", "null_engine"]

_KV_RECORD = struct.Struct("<i")  # Part 2.1: one int of 4 bytes
_FREE = 1  # place in an engine's counters


class Effect(NamedTuple):
    """What one call did to the pool and which blocks it took: the bytes that it alone may touch."""

    taken: tuple[tuple[int, int, int], ...] = ()
    """(sequence id, logical block, physical block), in the order in which they were taken."""
    stored: int | None = None
    """The byte of the pool where the 4 bytes of kv_data went."""
    copied: tuple[int, int] | None = None
    """(old block, new block) of a copy-on-write."""


NO_EFFECT = Effect()


def first_fit(ref_count: array[int]) -> int:
    """The lowest block whose ref_count is 0 (Global Constraint 3)."""
    try:
        return ref_count.index(0)
    except ValueError:
        raise CannotGoOn("free_local_blocks is above 0, but no block has ref_count 0") from None


def null_engine(call: str) -> Reply:
    """The answer of every call to a NULL engine (Global Constraint 1)."""
    returns_pointer = call in ("create_sequence", "fork_sequence")
    return _refused("NULL" if returns_pointer else "-1", "Constraint 1/null-engine", "null-engine")


def llm_init(pool: memoryview | None, pool_size: int) -> tuple[Engine | None, Reply]:
    """Task 1: set up the management structures over `pool`, which is not written."""
    if pool is None:
        return None, _refused("NULL", "Task 1/null-pool", "null-pool")
    if pool_size < BLOCK_SIZE:
        return None, _refused("NULL", "Task 1/small-pool", "small-pool")
    return Engine(pool, pool_size // BLOCK_SIZE), _accepted("engine", "Task 1/total-blocks")


class Engine:
    """The handout's `LLMEngine`, and the calls that take one."""

    def __init__(self, pool: memoryview, total_local_blocks: int) -> None:
        self.pool = pool
        self.total_local_blocks = total_local_blocks
        self.free_local_blocks = total_local_blocks
        """To be changed by `set_free_local_blocks`."""
        self.counters = array("i", [total_local_blocks, total_local_blocks])
        """Both, as they stand in a record."""
        self.ref_count = array("i", bytes(KV_SIZE * total_local_blocks))
        self.active_seqs: dict[int, Sequence] = {}
        """The list, in its order: a dict keeps the order in which sequences were appended."""

        self.choose: Callable[[array[int]], int] = first_fit
        self.effect = NO_EFFECT

    def set_free_local_blocks(self, free_local_blocks: int) -> None:
        """Here and where it stands in a record."""
        self.free_local_blocks = free_local_blocks
        self.counters[_FREE] = free_local_blocks

    def create_sequence(self, seq_id: int, initial_kv_len: int) -> Reply:
        """Task 2: map all blocks of a prompt whose length is known."""
        if initial_kv_len <= 0:
            return _refused("NULL", "Task 2/length", "bad-length")
        if seq_id in self.active_seqs:
            return _refused("NULL", "Task 2/unique-id", "id-taken")

        needed = (initial_kv_len + KV_PER_BLOCK - 1) // KV_PER_BLOCK
        if needed > MAX_LOGICAL_BLOCKS:
            return _refused("NULL", "Task 2/too-long", "too-long")
        if needed > self.free_local_blocks:
            return _refused("NULL", "Task 2/no-room", "none-free")

        sequence = Sequence(seq_id, kv_count=initial_kv_len)
        blocks = [self._map_new_block(sequence, Place.of(logical * KV_PER_BLOCK)) for logical in range(needed)]
        self.set_free_local_blocks(self.free_local_blocks - needed)
        self.active_seqs[seq_id] = sequence
        self.effect = Effect(tuple((seq_id, logical, block) for logical, block in enumerate(blocks)))
        return _accepted("seq", "Task 2/returns-sequence")

    def free_sequence(self, seq_id: int) -> Reply:
        """Task 2: give back every block and all memory of a sequence."""
        if seq_id not in self.active_seqs:
            return _refused("-1", "Task 2/free-unknown", "unknown-id")

        sequence = self.active_seqs.pop(seq_id)
        blocks, circumstances = sequence.traversed()
        released = [self._release(block) for block in blocks]
        self.set_free_local_blocks(self.free_local_blocks + released.count(True))
        if True in released:
            circumstances.add("last-reference")
        if False in released:
            circumstances.add("still-shared")
        return _accepted("0", "Task 2/free-returns", *circumstances)

    def fork_sequence(self, parent_seq_id: int, new_seq_id: int) -> Reply:
        """Task 3: a child that shares all blocks of its parent, through tables of its own."""
        if parent_seq_id not in self.active_seqs:
            return _refused("NULL", "Task 3/parent", "unknown-id")
        if new_seq_id in self.active_seqs:
            return _refused("NULL", "Task 3/unique-id", "id-taken")

        parent = self.active_seqs[parent_seq_id]
        blocks, circumstances = parent.traversed()
        for block in blocks:
            self.ref_count[block] += 1
        self.active_seqs[new_seq_id] = parent.forked(new_seq_id)
        if self.free_local_blocks == 0:
            circumstances.add("none-free")
        return _accepted("seq", "Task 3/returns-child", *circumstances)

    def append_kv(self, seq_id: int, kv_data: int) -> Reply:
        """Task 4: write one KV record, on a new page or after a copy-on-write where that is due."""
        if seq_id not in self.active_seqs:
            return _refused("-1", "Task 4/unknown", "unknown-id")
        sequence = self.active_seqs[seq_id]
        place = Place.of(sequence.kv_count)
        if place.logical >= MAX_LOGICAL_BLOCKS:
            return _refused("-1", "Task 4/full", "sequence-full")

        block = sequence.block_at(place)
        if block != UNMAPPED and self.ref_count[block] <= 1:
            self._store(sequence, place, block, kv_data)
            return _APPENDED_IN_PLACE[self.free_local_blocks == 0]
        circumstances = _new_page(sequence, place) if block == UNMAPPED else ("copy-on-write",)
        if self.free_local_blocks == 0:
            return _refused("-1", "Task 4/oom", *circumstances, "none-free")

        new = self._map_new_block(sequence, place)
        self.set_free_local_blocks(self.free_local_blocks - 1)
        if block != UNMAPPED:
            self._copy_on_write(block, new)
        self._store(sequence, place, new, kv_data)
        copied = None if block == UNMAPPED else (block, new)
        self.effect = Effect(((seq_id, place.logical, new),), self.effect.stored, copied)
        return _accepted("0", "Task 4/count-returns", *circumstances)

    def llm_destroy(self) -> Reply:
        """Task 5: destroy what is left. The pool stays: it belongs to the caller."""
        circumstances = {"live-sequences"} if self.active_seqs else set()
        for seq_id in list(self.active_seqs):
            circumstances |= self.free_sequence(seq_id).circumstances
        return _accepted("0", "Task 5/returns", *circumstances)

    def _map_new_block(self, sequence: Sequence, place: Place) -> int:
        """Take a free block and map it; it is not written (Global Constraints 3 and 4)."""
        block = self.choose(self.ref_count)
        sequence.map_block(place, block)
        self.ref_count[block] = 1
        return block

    def _copy_on_write(self, shared: int, new: int) -> None:
        """Part 2.3, Copy-on-Write Protocol: all 64 bytes, and one reference less to the shared block."""
        old, start = shared * BLOCK_SIZE, new * BLOCK_SIZE
        self.pool[start : start + BLOCK_SIZE] = self.pool[old : old + BLOCK_SIZE]
        self.ref_count[shared] -= 1

    def _store(self, sequence: Sequence, place: Place, block: int, kv_data: int) -> None:
        """Write one KV record into its slot of a block and count it (Part 2.2)."""
        address = block * BLOCK_SIZE + place.offset * KV_SIZE
        _KV_RECORD.pack_into(self.pool, address, kv_data)
        sequence.set_kv_count(sequence.kv_count + 1)
        self.effect = _stores(address)

    def _release(self, block: int) -> bool:
        """One reference less; is the block free again (Global Constraint 5)?"""
        left = self.ref_count[block] - 1
        self.ref_count[block] = left
        return left == 0


def _new_page(sequence: Sequence, place: Place) -> tuple[str, ...]:
    """The circumstances of an append to a slot that maps no block yet."""
    words = ["new-page"]
    if not sequence.has_l2_table(place.l1):
        words.append("l2-missing")
    if place.offset:
        words.append("mid-block")
    return tuple(words)


@lru_cache(maxsize=1 << 14)
def _stores(address: int) -> Effect:
    """The effect of most appends."""
    return Effect(stored=address)


@cache
def _accepted(reply: str, clause: str, *circumstances: str) -> Reply:
    return Reply(text=reply, clause=clause, circumstances=frozenset(circumstances))


@cache
def _refused(reply: str, clause: str, *circumstances: str) -> Reply:
    return Reply(text=reply, refused=True, clause=clause, circumstances=frozenset(circumstances))


_APPENDED_IN_PLACE = (
    _accepted("0", "Task 4/count-returns", "in-place"),
    _accepted("0", "Task 4/count-returns", "in-place", "none-free"),
)
"""The answer while there are free blocks, and when there are none."""
