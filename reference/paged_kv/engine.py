"""The six calls of the handout, in the handout's order; each check names the clause that demands it.

Every call first checks its arguments, then whether enough blocks are free, and only then changes anything
(Global Constraint 2, "check before allocate").
"""

from __future__ import annotations

from reference.operation import Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, MAX_LOGICAL_BLOCKS
from reference.paged_kv.sequence import UNMAPPED, Sequence


def accepted(text: str, clause: str) -> Reply:
    """The reply of a call that did its work."""
    return Reply(text=text, clause=clause)


def refused(text: str, clause: str) -> Reply:
    """The reply of a call that must fail and change nothing."""
    return Reply(text=text, refused=True, clause=clause)


def null_engine(call: str) -> Reply:
    """The reply of every call to a NULL engine (Global Constraint 1)."""
    returns_pointer = call in ("create_sequence", "fork_sequence")
    return refused("NULL" if returns_pointer else "-1", "Constraint 1/null-engine")


def llm_init(pool: memoryview | None, pool_size: int) -> tuple[Engine | None, Reply]:
    """Task 1: set up the management structures over `pool`, the KV records of the pool, which are not written."""
    if pool is None:
        return None, refused("NULL", "Task 1/null-pool")
    if pool_size < BLOCK_SIZE:
        return None, refused("NULL", "Task 1/small-pool")
    return Engine(pool, pool_size // BLOCK_SIZE), accepted("engine", "Task 1/total-blocks")


class Engine:
    """The handout's `LLMEngine`, and the calls that take one."""

    def __init__(self, pool: memoryview, total_local_blocks: int) -> None:
        self.pool = pool
        """What `pool_base_ptr` points to: the pool's KV records, KV_PER_BLOCK for each block."""
        self.total_local_blocks = total_local_blocks
        self.free_local_blocks = total_local_blocks
        self.ref_count = [0] * total_local_blocks
        self.active_seqs: list[Sequence] = []
        """In the order of the list: the handout appends at the tail."""

    def find(self, seq_id: int) -> Sequence | None:
        """The active sequence with this id, None when there is none."""
        return next((sequence for sequence in self.active_seqs if sequence.seq_id == seq_id), None)

    def create_sequence(self, seq_id: int, initial_kv_len: int) -> Reply:
        """Task 2: map all blocks of a prompt whose length is known."""
        if initial_kv_len <= 0:
            return refused("NULL", "Task 2/length")
        if self.find(seq_id) is not None:
            return refused("NULL", "Task 2/unique-id")

        needed = (initial_kv_len + KV_PER_BLOCK - 1) // KV_PER_BLOCK
        if needed > MAX_LOGICAL_BLOCKS:
            return refused("NULL", "Task 2/too-long")
        if needed > self.free_local_blocks:
            return refused("NULL", "Task 2/no-room")

        sequence = Sequence(seq_id, initial_kv_len)
        for logical, block in enumerate(self._take_blocks(needed)):
            sequence.map_block(logical, block)
        self.active_seqs.append(sequence)
        return accepted("seq", "Task 2/returns-sequence")

    def free_sequence(self, seq_id: int) -> Reply:
        """Task 2: give back every block and all memory of a sequence."""
        sequence = self.find(seq_id)
        if sequence is None:
            return refused("-1", "Task 2/free-unknown")

        for block in sequence.mapped_blocks():
            self.release_block(block)
        self.active_seqs.remove(sequence)
        return accepted("0", "Task 2/free-returns")

    def fork_sequence(self, parent_seq_id: int, new_seq_id: int) -> Reply:
        """Task 3: a child that shares all blocks of its parent, through tables of its own."""
        parent = self.find(parent_seq_id)
        if parent is None:
            return refused("NULL", "Task 3/parent")
        if self.find(new_seq_id) is not None:
            return refused("NULL", "Task 3/unique-id")

        child = Sequence(new_seq_id, parent.kv_count)
        child.block_table = [None if l2_table is None else l2_table[:] for l2_table in parent.block_table]
        for block in child.mapped_blocks():
            self.ref_count[block] += 1
        self.active_seqs.append(child)
        return accepted("seq", "Task 3/returns-child")

    def append_kv(self, seq_id: int, kv_data: int) -> Reply:
        """Task 4: write one KV record: in place, on a new page, or after a copy-on-write."""
        sequence = self.find(seq_id)
        if sequence is None:
            return refused("-1", "Task 4/unknown")
        logical, offset = divmod(sequence.kv_count, KV_PER_BLOCK)
        if logical >= MAX_LOGICAL_BLOCKS:
            return refused("-1", "Task 4/full")

        block = sequence.block_at(logical)
        new_page = block == UNMAPPED
        shared = not new_page and self.ref_count[block] > 1
        if (new_page or shared) and self.free_local_blocks == 0:
            return refused("-1", "Task 4/oom")

        if new_page or shared:
            (new_block,) = self._take_blocks(1)
            if shared:
                self._copy_on_write(block, new_block)
            sequence.map_block(logical, new_block)
            block = new_block
        self.pool[block * KV_PER_BLOCK + offset] = kv_data
        sequence.kv_count += 1
        return accepted("0", "Task 4/count-returns")

    def llm_destroy(self) -> Reply:
        """Task 5: free what is left. The pool stays: it belongs to the caller."""
        while self.active_seqs:
            self.free_sequence(self.active_seqs[0].seq_id)
        return accepted("0", "Task 5/returns")

    def first_fit(self, needed: int) -> list[int]:
        """The lowest blocks whose ref_count is 0 (Global Constraint 3)."""
        free_blocks = [block for block, count in enumerate(self.ref_count) if count == 0]
        return free_blocks[:needed]

    def release_block(self, block: int) -> None:
        """Give up one reference; the block is free when none is left (Global Constraint 5)."""
        self.ref_count[block] -= 1
        if self.ref_count[block] == 0:
            self.free_local_blocks += 1

    def _take_blocks(self, needed: int) -> list[int]:
        """Take free blocks; their content is not touched (Global Constraints 3, 4 and 5)."""
        blocks = self.first_fit(needed)
        for block in blocks:
            self.ref_count[block] = 1
        self.free_local_blocks -= needed
        return blocks

    def _copy_on_write(self, shared: int, new: int) -> None:
        """Part 2.3, Copy-on-Write Protocol: copy the whole block; the shared block has one reference less."""
        old, start = shared * KV_PER_BLOCK, new * KV_PER_BLOCK
        self.pool[start : start + KV_PER_BLOCK] = self.pool[old : old + KV_PER_BLOCK]
        self.ref_count[shared] -= 1
