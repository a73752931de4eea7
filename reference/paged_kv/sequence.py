"""One sequence: its two-level block table and its number of KV records (handout, Part 2.2 and 2.4)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from enum import IntEnum

from reference.paged_kv.words import L1_PT_SIZE, L2_PT_SIZE

__all__ = ["KV_COUNT", "UNMAPPED", "Pointer", "Sequence", "SequenceList"]

UNMAPPED = -1
_NEW_L2_TABLE = array("i", [UNMAPPED] * L2_PT_SIZE)  # as the handout wants it (Task 2)


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

    readable: bool
    """May what it leads to be read?"""

    def __init__(self, _: int) -> None:
        self.readable = self.name in ("OK", "SHARED")


KV_COUNT = 1
"""Place of kv_count in a sequence's ints."""

_SEQ_ID, _L1_TABLE = 0, 3
_L2_TABLES = _L1_TABLE + L1_PT_SIZE
_LENGTH = 2  # place in the ints of a list


def _head(tables: int) -> array[int]:
    """The ints of a sequence before its L2 tables, the first so many slots of its L1 table leading to one."""
    return array("i", [0, 0, Pointer.OK, *[Pointer.OK] * tables, *[Pointer.NULL] * (L1_PT_SIZE - tables)])


def _l2_starts(tables: int) -> list[int]:
    """Where the L2 tables of such a sequence begin."""
    return [_L2_TABLES + L2_PT_SIZE * slot if slot < tables else 0 for slot in range(L1_PT_SIZE)]


_HEADS = [_head(tables) for tables in range(L1_PT_SIZE + 1)]
_UNMAPPED_ENTRIES = [_NEW_L2_TABLE[:entries] for entries in range(L2_PT_SIZE)]
_L2_STARTS = [_l2_starts(tables) for tables in range(L1_PT_SIZE + 1)]


class SequenceList:
    """The handout's `active_seqs`. What stands for it in a record (record.py) is kept as it stands there.

    `ints` are its own three, then those of its sequences, one behind the other. `by_id` has the same order: a dict
    keeps the one in which its keys came.
    """

    __slots__ = ("by_id", "ints")

    def __init__(self) -> None:
        self.ints = array("i", [Pointer.OK, 1, 0])
        self.by_id: dict[int, Sequence] = {}

    def append(self, seq_id: int, kv_count: int, blocks: list[int]) -> Sequence:
        """A new sequence with these blocks mapped from the left, in as many L2 tables as they need (Task 2)."""
        ints, start = self.ints, len(self.ints)
        tables = (len(blocks) + L2_PT_SIZE - 1) // L2_PT_SIZE
        ints += _HEADS[tables]
        ints.fromlist(blocks)
        ints += _UNMAPPED_ENTRIES[tables * L2_PT_SIZE - len(blocks)]
        ints[start + KV_COUNT] = kv_count
        return self._linked(Sequence(self, seq_id, start, _L2_STARTS[tables]))

    def append_tables(self, seq_id: int, kv_count: int, tables: Iterable[array[int] | None]) -> None:
        """A sequence with these L2 tables in the slots of its L1 table; None is NULL."""
        ints, start = self.ints, len(self.ints)
        ints += _HEADS[0]
        ints[start + KV_COUNT] = kv_count
        l2_starts = [0] * L1_PT_SIZE
        for slot, table in enumerate(tables):
            if table is not None:
                l2_starts[slot] = len(ints) - start
                ints[start + _L1_TABLE + slot] = Pointer.OK
                ints += table
        self._linked(Sequence(self, seq_id, start, l2_starts))

    def append_fork(self, parent: Sequence, seq_id: int) -> None:
        """A sequence like its parent, with L1 and L2 tables of its own, which map the same blocks (Task 3)."""
        start = len(self.ints)
        self.ints += parent.own_ints
        self._linked(Sequence(self, seq_id, start, parent.l2_starts))

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, with all its tables (Task 2)."""
        del self.by_id[sequence.seq_id]
        self.ints[_LENGTH] = len(self.by_id)
        del self.ints[sequence.start : sequence.start + sequence.size]
        self.shift_behind(sequence, -sequence.size)

    def shift_behind(self, changed: Sequence, ints: int) -> None:
        """This sequence has so many ints more, so all behind it begin later."""
        for sequence in reversed(self.by_id.values()):
            if sequence.start <= changed.start:
                break
            sequence.start += ints

    def _linked(self, sequence: Sequence) -> Sequence:
        """Its ints are the last ones already."""
        self.by_id[sequence.seq_id] = sequence
        self.ints[sequence.start + _SEQ_ID] = sequence.seq_id
        self.ints[_LENGTH] = len(self.by_id)
        return sequence


class Sequence:
    """The handout's `Sequence`; its list node is its place in its `SequenceList`.

    Of the `ints` there `size` from `start` on are its own: its fields, its L1 table, and behind them the L2 tables that
    exist, in the order of their slots.
    """

    __slots__ = ("ints", "l2_starts", "seq_id", "siblings", "size", "start")

    def __init__(self, siblings: SequenceList, seq_id: int, start: int, l2_starts: list[int]) -> None:
        self.siblings = siblings
        self.ints = siblings.ints
        self.seq_id = seq_id
        self.start = start
        self.size = len(self.ints) - start
        self.l2_starts = l2_starts[:]
        """For each L1 slot where its L2 table begins, counted from `start`; 0 for NULL."""

    @property
    def own_ints(self) -> array[int]:
        """A copy of its own ints."""
        return self.ints[self.start : self.start + self.size]

    @property
    def kv_count(self) -> int:
        """The number of KV records."""
        return self.ints[self.start + KV_COUNT]

    @kv_count.setter
    def kv_count(self, kv_count: int) -> None:
        """It stands in the list's ints and nowhere else."""
        self.ints[self.start + KV_COUNT] = kv_count

    @property
    def block_table(self) -> list[array[int] | None]:
        """The L1 table, to be read: for each slot a copy of its L2 table, None for NULL."""
        starts = [start and self.start + start for start in self.l2_starts]
        return [self.ints[start : start + L2_PT_SIZE] if start else None for start in starts]

    def has_l2_table(self, l1: int) -> bool:
        """Is there an L2 table in this L1 slot?"""
        return self.l2_starts[l1] > 0

    def block_at(self, logical: int) -> int:
        """The physical block of a logical one, -1 where none is mapped or the L2 table is missing (Part 2.2)."""
        start = self.l2_starts[logical // L2_PT_SIZE]
        return self.ints[self.start + start + logical % L2_PT_SIZE] if start else UNMAPPED

    def map_block(self, logical: int, block: int) -> None:
        """Write a block id into the table, with a new L2 table where none is yet (Task 4)."""
        l1, l2 = divmod(logical, L2_PT_SIZE)
        if not self.has_l2_table(l1):
            self.hang(l1, _NEW_L2_TABLE)
        self.ints[self.start + self.l2_starts[l1] + l2] = block

    def mapped_blocks(self) -> array[int]:
        """Every mapped block, in the order of the tables."""
        return self.traversed()[0]

    def traversed(self) -> tuple[array[int], tuple[str, ...]]:
        """Every mapped block, over all 16 L1 slots (Task 2, critical traversal rule); and what is unusual on the way.

        That is NULL before an L2 table ("holes"), or -1 in one before a mapped entry or alone ("unmapped-entries").
        """
        entries = self.ints[self.start + _L2_TABLES : self.start + self.size]
        tables = len(entries) // L2_PT_SIZE
        words: tuple[str, ...] = ("holes",) if 0 in self.l2_starts[:tables] else ()
        mapped = len(entries) - entries.count(UNMAPPED)
        blocks = entries[:mapped]
        if mapped <= L2_PT_SIZE * (tables - 1) or UNMAPPED in blocks:  # else all are mapped from the left
            each = [entries[start : start + L2_PT_SIZE] for start in range(0, len(entries), L2_PT_SIZE)]
            if not all(map(_mapped_from_the_left, each)):
                words += ("unmapped-entries",)
            blocks = array("i", (entry for entry in entries if entry != UNMAPPED))
        return blocks, words

    def hang(self, l1: int, l2_table: array[int]) -> None:
        """Put these 16 entries into an empty L1 slot."""
        start = _L2_TABLES + L2_PT_SIZE * (l1 - self.l2_starts[:l1].count(0))
        self._replace(start, start, l2_table)
        self.l2_starts[l1] = start
        self.ints[self.start + _L1_TABLE + l1] = Pointer.OK

    def take_down(self, l1: int) -> array[int]:
        """Make an L1 slot NULL; returns the L2 table that was there."""
        start = self.l2_starts[l1]
        l2_table = self.own_ints[start : start + L2_PT_SIZE]
        self.l2_starts[l1] = 0
        self._replace(start, start + L2_PT_SIZE, array("i"))
        self.ints[self.start + _L1_TABLE + l1] = Pointer.NULL
        return l2_table

    def _replace(self, start: int, end: int, new: array[int]) -> None:
        """Put other ints in the place of these: what stands behind them begins later, or earlier."""
        self.ints[self.start + start : self.start + end] = new
        more = len(new) - (end - start)
        self.size += more
        self.l2_starts = [later + more if later >= start else later for later in self.l2_starts]
        self.siblings.shift_behind(self, more)


def _mapped_from_the_left(l2_table: array[int]) -> bool:
    """Is the first entry mapped, and none behind one that is not?"""
    mapped = L2_PT_SIZE - l2_table.count(UNMAPPED)
    return mapped > 0 and UNMAPPED not in l2_table[:mapped]
