"""The six calls of the handout, in handout order; each check with the clause that demands it.

Every call is three paragraphs: basic and id checks, the probe for free blocks, then the change
(Global Constraint 2, "check before allocate").
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

from reference.model import CannotGoOn
from reference.paged_kv.outcome import InPlace, Outcome, accepted, copy_allowed, refused, store_allowed
from reference.paged_kv.sequence import KV_COUNT, UNMAPPED, Pointer, Sequence, SequenceList
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

__all__ = ["Engine", "first_fit", "llm_init", "null_engine"]

_POOL_BYTES, _TOTAL, _FREE = 0, 3, 4  # places in an engine's head
_CREATED = accepted("seq", "Task 2/returns-sequence").reply


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


def null_engine(call: str) -> Outcome:
    """The answer of every call to a NULL engine (Global Constraint 1)."""
    returns_pointer = call in ("create_sequence", "fork_sequence")
    return refused("NULL" if returns_pointer else "-1", "Constraint 1/null-engine", "null-engine")


def llm_init(pool: memoryview | None, pool_size: int, number: int = 1) -> tuple[Engine | None, Outcome]:
    """Task 1: set up the management structures of engine `number` over `pool`, which is not written."""
    if pool is None:
        return None, refused("NULL", "Task 1/null-pool", "null-pool")
    if pool_size < BLOCK_SIZE:
        return None, refused("NULL", "Task 1/small-pool", "small-pool")
    return Engine(pool, pool_size // BLOCK_SIZE, number), accepted("engine", "Task 1/total-blocks")


class Engine:
    """The handout's `LLMEngine`, and the calls that take one."""

    def __init__(self, pool: memoryview, total_local_blocks: int, number: int) -> None:
        self.pool = pool[: len(pool) // KV_SIZE * KV_SIZE].cast("i")
        """Its whole words."""
        self.head = array("i", [len(pool), 1, 1, total_local_blocks, total_local_blocks, Pointer.OK])
        """What stands before ref_count in a record (record.py)."""
        self.ref_count = array("i", bytes(KV_SIZE * total_local_blocks))
        self.sequences = SequenceList()
        self.active_seqs = self.sequences.by_id

        self.choose: Callable[[array[int], int], list[int]] = first_fit
        self._number = number
        self._in_place = InPlace.of(number, none_free=False), InPlace.of(number, none_free=True)

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
        """For pokes, and for what a program left; the calls count in `head` themselves, which is quicker."""
        self.head[_FREE] = blocks

    def create_sequence(self, seq_id: int, initial_kv_len: int) -> Outcome:
        """Task 2: map all blocks of a prompt whose length is known."""
        if initial_kv_len <= 0:
            return refused("NULL", "Task 2/length", "bad-length")
        if seq_id in self.active_seqs:
            return refused("NULL", "Task 2/unique-id", "id-taken")

        needed = (initial_kv_len + KV_PER_BLOCK - 1) // KV_PER_BLOCK
        if needed > MAX_LOGICAL_BLOCKS:
            return refused("NULL", "Task 2/too-long", "too-long")
        if needed > self.head[_FREE]:
            return refused("NULL", "Task 2/no-room", "none-free")

        blocks = self._take_blocks(needed)
        self.sequences.append(seq_id, initial_kv_len, blocks)
        return Outcome(_CREATED, tuple(blocks), seq_id)

    def free_sequence(self, seq_id: int) -> Outcome:
        """Task 2: give back every block and all memory of a sequence."""
        sequence = self.active_seqs.get(seq_id)
        if sequence is None:
            return refused("-1", "Task 2/free-unknown", "unknown-id")

        blocks, circumstances = sequence.traversed()
        self.sequences.remove(sequence)
        released = self._release(blocks)
        self.head[_FREE] += released
        if released:
            circumstances += ("last-reference",)
        if released < len(blocks):
            circumstances += ("still-shared",)
        return accepted("0", "Task 2/free-returns", *circumstances)

    def fork_sequence(self, parent_seq_id: int, new_seq_id: int) -> Outcome:
        """Task 3: a child that shares all blocks of its parent, through tables of its own."""
        parent = self.active_seqs.get(parent_seq_id)
        if parent is None:
            return refused("NULL", "Task 3/parent", "unknown-id")
        if new_seq_id in self.active_seqs:
            return refused("NULL", "Task 3/unique-id", "id-taken")

        blocks, circumstances = parent.traversed()
        for block in blocks:
            self.ref_count[block] += 1
        self.sequences.append_fork(parent, new_seq_id)
        if self.head[_FREE] == 0:
            circumstances += ("none-free",)
        return accepted("seq", "Task 3/returns-child", *circumstances)

    def append_kv(self, seq_id: int, kv_data: int) -> Outcome:
        """Task 4: write one KV record, on a new page or after a copy-on-write where that is due."""
        sequence = self.active_seqs.get(seq_id)
        if sequence is None:
            return refused("-1", "Task 4/unknown", "unknown-id")
        ints, at = sequence.ints, sequence.start + KV_COUNT
        kv_count = ints[at]
        logical, offset = kv_count // KV_PER_BLOCK, kv_count % KV_PER_BLOCK
        if logical >= MAX_LOGICAL_BLOCKS:
            return refused("-1", "Task 4/full", "sequence-full")

        block = sequence.block_at(logical)
        if block != UNMAPPED and self.ref_count[block] <= 1:
            word = block * KV_PER_BLOCK + offset
            outcome = self._in_place[self.head[_FREE] == 0][word]
        else:
            circumstances = _new_page(sequence, kv_count) if block == UNMAPPED else ("copy-on-write",)
            if self.head[_FREE] == 0:
                return refused("-1", "Task 4/oom", *circumstances, "none-free")
            (new,) = self._take_blocks(1)
            sequence.map_block(logical, new)
            word = new * KV_PER_BLOCK + offset
            reply = accepted("0", "Task 4/count-returns", *circumstances).reply
            if block == UNMAPPED:
                copied, allowed = None, store_allowed(self._number, word)
            else:
                self._copy_on_write(block, new)
                copied, allowed = (block, new), copy_allowed(self._number, block, new)
            outcome = Outcome(reply, (new,), seq_id, logical, word, copied, allowed)

        self.pool[word] = kv_data
        ints[at] = kv_count + 1
        return outcome

    def llm_destroy(self) -> Outcome:
        """Task 5: destroy what is left. The pool stays: it belongs to the caller."""
        circumstances = {"live-sequences"} if self.active_seqs else set()
        for seq_id in reversed(list(self.active_seqs)):  # the last one first: nothing has to move up
            circumstances |= self.free_sequence(seq_id).reply.circumstances
        return accepted("0", "Task 5/returns", *circumstances)

    def _take_blocks(self, needed: int) -> list[int]:
        """Take free blocks, which are not written (Global Constraints 3 and 4)."""
        blocks = self.choose(self.ref_count, needed)
        for block in blocks:
            self.ref_count[block] = 1
        self.head[_FREE] -= needed
        return blocks

    def _copy_on_write(self, shared: int, new: int) -> None:
        """Part 2.3, Copy-on-Write Protocol: all 64 bytes, and one reference less to the shared block."""
        old, start = shared * KV_PER_BLOCK, new * KV_PER_BLOCK
        self.pool[start : start + KV_PER_BLOCK] = self.pool[old : old + KV_PER_BLOCK]
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


def _new_page(sequence: Sequence, kv_count: int) -> tuple[str, ...]:
    """The circumstances of an append to a slot that maps no block yet."""
    words = ["new-page"]
    if not sequence.has_l2_table(kv_count // (KV_PER_BLOCK * L2_PT_SIZE)):
        words.append("l2-missing")
    if kv_count % KV_PER_BLOCK:
        words.append("mid-block")
    return tuple(words)
