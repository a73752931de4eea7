"""One sequence: its two-level block table and its number of KV records (handout, Part 2.2 and 2.4)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from reference.paged_kv.words import KV_PER_BLOCK, L1_PT_SIZE, L2_PT_SIZE

__all__ = ["UNMAPPED", "Place", "Sequence", "new_l2_table"]

UNMAPPED = -1
_NEW_L2_TABLE = array("i", [UNMAPPED] * L2_PT_SIZE)


def new_l2_table() -> array[int]:
    """An L2 block table as the handout wants it: 16 ints, all -1 (Task 2)."""
    return _NEW_L2_TABLE[:]


class Place(NamedTuple):
    """Where a KV record belongs (Part 2.2, step-by-step example)."""

    logical: int
    offset: int
    l1: int
    l2: int

    @classmethod
    def of(cls, kv_count: int) -> Place:
        """The place of KV record number `kv_count`; number 613 is (38, 5, 2, 6)."""
        logical, offset = divmod(kv_count, KV_PER_BLOCK)
        return cls(logical, offset, *divmod(logical, L2_PT_SIZE))


class Sequence:
    """The handout's `Sequence`; its list node is its place in `Engine.active_seqs`."""

    __slots__ = ("block_table", "encoded", "kv_count", "seq_id")

    def __init__(self, seq_id: int, kv_count: int = 0) -> None:
        self.seq_id = seq_id
        self.block_table: list[array[int] | None] = [None] * L1_PT_SIZE
        self.kv_count = kv_count
        self.encoded: bytes | None = None
        """Its bytes in a record, kept until it changes (see record.py)."""

    def block_at(self, place: Place) -> int:
        """The physical block mapped at `place`, -1 when its slot or its L2 table is missing."""
        l2_table = self.block_table[place.l1]
        return UNMAPPED if l2_table is None else l2_table[place.l2]

    def map_block(self, place: Place, block: int) -> None:
        """Write a block id into the table, with a new L2 table where none is yet (Tasks 2 and 4)."""
        l2_table = self.block_table[place.l1]
        if l2_table is None:
            l2_table = self.block_table[place.l1] = new_l2_table()
        l2_table[place.l2] = block
        self.encoded = None

    def mapped_blocks(self) -> Iterator[int]:
        """Every mapped block, over all 16 L1 slots (Task 2, critical traversal rule)."""
        for l2_table in self.block_table:
            if l2_table is not None:
                yield from (block for block in l2_table if block != UNMAPPED)
