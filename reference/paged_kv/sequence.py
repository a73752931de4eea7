"""One sequence: its id, its number of KV records, and its two-level block table (handout, Part 2.2 and 2.4)."""

from __future__ import annotations

from reference.paged_kv.constants import L1_PT_SIZE, L2_PT_SIZE

UNMAPPED = -1


class Sequence:
    """The handout's `Sequence`. Its list node is its place in `Engine.active_seqs`."""

    def __init__(self, seq_id: int, kv_count: int) -> None:
        self.seq_id = seq_id
        self.kv_count = kv_count
        self.block_table: list[list[int] | None] = [None] * L1_PT_SIZE
        """The L1 table: for each slot an L2 table of block ids, or None for the handout's NULL."""

    def block_at(self, logical: int) -> int:
        """The physical block of a logical one; -1 where none is mapped or the L2 table is missing (Part 2.2)."""
        l2_table = self.block_table[logical // L2_PT_SIZE]
        return UNMAPPED if l2_table is None else l2_table[logical % L2_PT_SIZE]

    def map_block(self, logical: int, block: int) -> None:
        """Write a block id into the table; a missing L2 table is created with -1 in all entries (Task 2, Task 4)."""
        l1, l2 = divmod(logical, L2_PT_SIZE)
        l2_table = self.block_table[l1]
        if l2_table is None:
            l2_table = self.block_table[l1] = [UNMAPPED] * L2_PT_SIZE
        l2_table[l2] = block

    def mapped_blocks(self) -> list[int]:
        """Every mapped block, over all L1 slots (Task 2, critical traversal rule)."""
        l2_tables = [l2_table for l2_table in self.block_table if l2_table is not None]
        return [block for l2_table in l2_tables for block in l2_table if block != UNMAPPED]
