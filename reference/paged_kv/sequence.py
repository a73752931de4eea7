"""One sequence: its two-level block table and its number of KV records (handout, Part 2.2 and 2.4)."""

from __future__ import annotations

from array import array
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from reference.paged_kv.words import KV_PER_BLOCK, L1_PT_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

__all__ = ["UNMAPPED", "Place", "Pointer", "Sequence", "new_l2_table"]

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

    @staticmethod
    @lru_cache(maxsize=2 * KV_PER_BLOCK * MAX_LOGICAL_BLOCKS)
    def of(kv_count: int) -> Place:
        """The place of KV record number `kv_count`; number 613 is (38, 5, 2, 6)."""
        logical, offset = divmod(kv_count, KV_PER_BLOCK)
        return Place(logical, offset, *divmod(logical, L2_PT_SIZE))


class Pointer(IntEnum):
    """What a pointer in the program's structures leads to, by the table of its allocations."""

    OK = 0
    NULL = 1
    STRAY = 2
    """not into memory that the program allocated"""
    SMALL = 3
    """into an allocation that is too small for what should be there"""
    FREED = 4
    SHARED = 5
    """readable, but the same table was already met in another place"""

    @property
    def readable(self) -> bool:
        """May what it leads to be read?"""
        return self in (Pointer.OK, Pointer.SHARED)


_SEQ_ID, _KV_COUNT, _L1_TABLE = 0, 1, 3  # places in a sequence's ints
_L2_TABLES = _L1_TABLE + L1_PT_SIZE
_NEW_SEQUENCE = array("i", [0, 0, Pointer.OK, *[Pointer.NULL] * L1_PT_SIZE])


class Sequence:
    """The handout's `Sequence`; its list node is its place in `Engine.active_seqs`.

    `ints` are those that stand for it in a record (see record.py): its fields, its L1 table, and behind them the L2
    tables that exist, in the order of their slots. So a record takes them as they are, and a fork is one copy.
    """

    __slots__ = ("ints", "kv_count", "l2_starts", "seq_id")

    def __init__(self, seq_id: int, kv_count: int = 0) -> None:
        self.seq_id = seq_id
        self.ints = _NEW_SEQUENCE[:]
        self.ints[_SEQ_ID] = seq_id
        self.set_kv_count(kv_count)
        self.l2_starts = [0] * L1_PT_SIZE
        """For each L1 slot where its L2 table begins in `ints`; 0 for NULL."""

    def set_kv_count(self, kv_count: int) -> None:
        """The number of KV records, here and where it stands in a record."""
        self.kv_count = kv_count
        self.ints[_KV_COUNT] = kv_count

    @property
    def block_table(self) -> list[array[int] | None]:
        """The L1 table, to be read: for each slot a copy of its L2 table, None for NULL."""
        return [self.ints[start : start + L2_PT_SIZE] if start else None for start in self.l2_starts]

    def forked(self, new_seq_id: int) -> Sequence:
        """A sequence of the same length with L1 and L2 tables of its own, which map the same blocks (Task 3)."""
        child = Sequence.__new__(Sequence)
        child.seq_id = new_seq_id
        child.kv_count = self.kv_count
        child.ints = self.ints[:]
        child.ints[_SEQ_ID] = new_seq_id
        child.l2_starts = self.l2_starts[:]
        return child

    def has_l2_table(self, l1: int) -> bool:
        """Is there an L2 table in this L1 slot?"""
        return self.l2_starts[l1] > 0

    def block_at(self, place: Place) -> int:
        """The physical block mapped at `place`, -1 when its slot or its L2 table is missing."""
        start = self.l2_starts[place.l1]
        return self.ints[start + place.l2] if start else UNMAPPED

    def map_block(self, place: Place, block: int) -> None:
        """Write a block id into the table, with a new L2 table where none is yet (Tasks 2 and 4)."""
        start = self.l2_starts[place.l1] or self.hang(place.l1, _NEW_L2_TABLE)
        self.ints[start + place.l2] = block

    def mapped_blocks(self) -> array[int]:
        """Every mapped block, in the order of the tables."""
        return self.traversed()[0]

    def traversed(self) -> tuple[array[int], set[str]]:
        """Every mapped block, over all 16 L1 slots (Task 2, critical traversal rule); and what is unusual on the way.

        That is NULL before an L2 table ("holes"), or -1 in one before a mapped entry or alone ("unmapped-entries").
        """
        entries = self.ints[_L2_TABLES:]
        tables = len(entries) // L2_PT_SIZE
        words = {"holes"} if 0 in self.l2_starts[:tables] else set()
        mapped = len(entries) - entries.count(UNMAPPED)
        blocks = entries[:mapped]
        if mapped <= L2_PT_SIZE * (tables - 1) or UNMAPPED in blocks:  # else all are mapped from the left
            each = [entries[start : start + L2_PT_SIZE] for start in range(0, len(entries), L2_PT_SIZE)]
            words |= {"unmapped-entries" for l2_table in each if not _mapped_from_the_left(l2_table)}
            blocks = array("i", (entry for entry in entries if entry != UNMAPPED))
        return blocks, words

    def hang(self, l1: int, l2_table: array[int]) -> int:
        """Put these 16 entries into an empty L1 slot; tells where they begin in `ints`."""
        start = _L2_TABLES + L2_PT_SIZE * (l1 - self.l2_starts[:l1].count(0))
        if start < len(self.ints):
            self.l2_starts = [later + L2_PT_SIZE if later >= start else later for later in self.l2_starts]
        self.l2_starts[l1] = start
        self.ints[start:start] = l2_table
        self.ints[_L1_TABLE + l1] = Pointer.OK
        return start

    def take_down(self, l1: int) -> array[int]:
        """Make an L1 slot NULL; returns the L2 table that was there."""
        start = self.l2_starts[l1]
        l2_table = self.ints[start : start + L2_PT_SIZE]
        del self.ints[start : start + L2_PT_SIZE]
        self.ints[_L1_TABLE + l1] = Pointer.NULL
        self.l2_starts[l1] = 0
        self.l2_starts = [later - L2_PT_SIZE if later > start else later for later in self.l2_starts]
        return l2_table


def _mapped_from_the_left(l2_table: array[int]) -> bool:
    """Is the first entry mapped, and none behind one that is not?"""
    mapped = L2_PT_SIZE - l2_table.count(UNMAPPED)
    return mapped > 0 and UNMAPPED not in l2_table[:mapped]
