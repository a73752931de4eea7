"""The six calls of the handout, in handout order; each check with the clause that demands it.

Every call is three paragraphs: basic and id checks, the probe for free blocks, then the change
(Global Constraint 2, "check before allocate").
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import count, repeat

from reference.model import CannotGoOn
from reference.operation import Reply
from reference.paged_kv.sequence import KV_COUNT, UNMAPPED, Place, Pointer, Sequence, SequenceList
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, MAX_LOGICAL_BLOCKS

__all__ = ["NO_EFFECT", "Effect", "Engine", "first_fit", "llm_init", "null_engine"]

_KV_RECORD = struct.Struct("<i")  # Part 2.1: one int of 4 bytes
_POOL_BYTES, _TOTAL, _FREE = 0, 3, 4  # places in an engine's head


@dataclass(slots=True, eq=False)
class Effect:
    """What one call did to the pool and which blocks it took: the bytes that it alone may touch.

    Many calls share one, so none is ever changed; `frozen` would make new ones twice as dear.
    """

    taken: tuple[tuple[int, int, int], ...] = ()
    """(sequence id, logical block, physical block), in the order in which they were taken."""
    stored: int | None = None
    """The byte of the pool where the 4 bytes of kv_data went."""
    copied: tuple[int, int] | None = None
    """(old block, new block) of a copy-on-write."""

    @property
    def written(self) -> tuple[int, int] | None:
        """The bytes of the pool that were written: the first one, and their end."""
        if self.copied is not None:
            return self.copied[1] * BLOCK_SIZE, (self.copied[1] + 1) * BLOCK_SIZE
        return None if self.stored is None else (self.stored, self.stored + KV_SIZE)


NO_EFFECT = Effect()


def first_fit(ref_count: array[int], needed: int) -> list[int]:
    """The lowest blocks whose ref_count is 0 (Global Constraint 3)."""
    blocks: list[int] = []
    block = -1
    try:
        for _ in range(needed):
            block = ref_count.index(0, block + 1)
            blocks.append(block)
        return blocks
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
        self.head = array("i", [len(pool), 1, 1, total_local_blocks, total_local_blocks, Pointer.OK])
        """What stands before ref_count in a record (record.py)."""
        self.ref_count = array("i", bytes(KV_SIZE * total_local_blocks))
        self.sequences = SequenceList()
        self.active_seqs = self.sequences.by_id

        self.choose: Callable[[array[int], int], list[int]] = first_fit
        self.effect = NO_EFFECT

    def set_pool_bytes(self, pool_bytes: int) -> None:
        """A program that wrongly has an engine keeps it when its slot gets another pool."""
        self.head[_POOL_BYTES] = pool_bytes

    @property
    def total_local_blocks(self) -> int:
        """Blocks of the pool."""
        return self.head[_TOTAL]

    @total_local_blocks.setter
    def total_local_blocks(self, blocks: int) -> None:
        """A program may pretend to have others."""
        self.head[_TOTAL] = blocks

    @property
    def free_local_blocks(self) -> int:
        """Blocks that nobody uses."""
        return self.head[_FREE]

    @free_local_blocks.setter
    def free_local_blocks(self, blocks: int) -> None:
        """Whoever takes a block or gives one back counts it here."""
        self.head[_FREE] = blocks

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

        blocks = self._take_blocks(needed)
        self.sequences.append(seq_id, initial_kv_len, blocks)
        self.effect = Effect(tuple(zip(repeat(seq_id), count(), blocks)))
        return _accepted("seq", "Task 2/returns-sequence")

    def free_sequence(self, seq_id: int) -> Reply:
        """Task 2: give back every block and all memory of a sequence."""
        if seq_id not in self.active_seqs:
            return _refused("-1", "Task 2/free-unknown", "unknown-id")

        blocks, circumstances = self.active_seqs[seq_id].traversed()
        self.sequences.remove(seq_id)
        released = self._release(blocks)
        self.free_local_blocks += released
        if released:
            circumstances.add("last-reference")
        if released < len(blocks):
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
        self.sequences.append_fork(parent, new_seq_id)
        if self.free_local_blocks == 0:
            circumstances.add("none-free")
        return _accepted("seq", "Task 3/returns-child", *circumstances)

    def append_kv(self, seq_id: int, kv_data: int) -> Reply:
        """Task 4: write one KV record, on a new page or after a copy-on-write where that is due."""
        sequence = self.active_seqs.get(seq_id)
        if sequence is None:
            return _refused("-1", "Task 4/unknown", "unknown-id")
        ints, at = sequence.ints, sequence.start + KV_COUNT
        place = Place.of(ints[at])
        logical, offset, _, _ = place
        if logical >= MAX_LOGICAL_BLOCKS:
            return _refused("-1", "Task 4/full", "sequence-full")

        block = sequence.block_at(place)
        if block != UNMAPPED and self.ref_count[block] <= 1:
            address = block * BLOCK_SIZE + offset * KV_SIZE
            self.effect = _stores(address)
            reply = _APPENDED_IN_PLACE[self.head[_FREE] == 0]
        else:
            circumstances = _new_page(sequence, place) if block == UNMAPPED else ("copy-on-write",)
            if self.free_local_blocks == 0:
                return _refused("-1", "Task 4/oom", *circumstances, "none-free")
            (new,) = self._take_blocks(1)
            sequence.map_block(place, new)
            if block != UNMAPPED:
                self._copy_on_write(block, new)
            address = new * BLOCK_SIZE + offset * KV_SIZE
            copied = None if block == UNMAPPED else (block, new)
            self.effect = Effect(((seq_id, logical, new),), address, copied)
            reply = _accepted("0", "Task 4/count-returns", *circumstances)

        _KV_RECORD.pack_into(self.pool, address, kv_data)
        ints[at] += 1
        return reply

    def llm_destroy(self) -> Reply:
        """Task 5: destroy what is left. The pool stays: it belongs to the caller."""
        circumstances = {"live-sequences"} if self.active_seqs else set()
        for seq_id in reversed(list(self.active_seqs)):  # the last one first: nothing has to move up
            circumstances |= self.free_sequence(seq_id).circumstances
        return _accepted("0", "Task 5/returns", *circumstances)

    def _take_blocks(self, needed: int) -> list[int]:
        """Take free blocks, which are not written (Global Constraints 3 and 4)."""
        blocks = self.choose(self.ref_count, needed)
        for block in blocks:
            self.ref_count[block] = 1
        self.free_local_blocks -= needed
        return blocks

    def _copy_on_write(self, shared: int, new: int) -> None:
        """Part 2.3, Copy-on-Write Protocol: all 64 bytes, and one reference less to the shared block."""
        old, start = shared * BLOCK_SIZE, new * BLOCK_SIZE
        self.pool[start : start + BLOCK_SIZE] = self.pool[old : old + BLOCK_SIZE]
        self.ref_count[shared] -= 1

    def _release(self, blocks: array[int]) -> int:
        """One reference less to each of them; how many are free again (Global Constraint 5)?"""
        ref_count = self.ref_count
        released = 0
        for block in blocks:
            left = ref_count[block] - 1
            ref_count[block] = left
            if left == 0:
                released += 1
        return released


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
