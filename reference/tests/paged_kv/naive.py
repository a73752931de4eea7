"""A second model of Homework 3, deliberately naive, to be compared with the engine after every operation.

It remembers as little as possible and derives everything else from scratch each time: which block each
(sequence, logical block) has, which L2 tables exist, how long each sequence is, in which order they came, and
the words of the region. Reference counts are counted, free blocks are searched. It shares no code with
`reference.paged_kv`, only the numbers of the handout and the form of a state.
"""

from __future__ import annotations

from array import array
from typing import Any

from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE, L1_PT_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

Arguments = tuple[int | None, ...]


class Misfit(Exception):
    """A poke does not fit the state it meets."""


def first_words(seed: int, slot: int, pool_bytes: int) -> list[int]:
    """The unsigned words of a fresh region: (seed * A + slot * 2^24 + place) * B modulo 2^32."""
    count = -(-(BLOCK_SIZE + pool_bytes + BLOCK_SIZE) // KV_SIZE)
    return [(seed * 0x85EBCA6B + slot * 2**24 + place) * 0x9E3779B1 % 2**32 for place in range(count)]


def _place(block: int) -> int:
    """The first word of a block in the region, behind a guard as long as a block."""
    return KV_PER_BLOCK * (1 + block)


class NaiveEngine:
    """One pool, and the engine on it while it is `alive`."""

    def __init__(self, seed: int, slot: int, pool_bytes: int) -> None:
        self.pool_bytes = pool_bytes
        self.words = first_words(seed, slot, pool_bytes)
        self.alive = pool_bytes >= BLOCK_SIZE
        self.order: list[int] = []
        self.lengths: dict[int, int] = {}
        self.blocks: dict[tuple[int, int], int] = {}
        """(sequence, logical block) -> physical block"""
        self.tables: set[tuple[int, int]] = set()
        """(sequence, L1 slot) of every L2 table"""
        self.met: set[str] = set()
        """What was special about the calls so far."""

    def uses(self) -> list[int]:
        """How often each block is mapped: the reference counts."""
        counts = [0] * (self.pool_bytes // BLOCK_SIZE)
        for block in self.blocks.values():
            counts[block] += 1
        return counts

    def take(self, seq_id: int, logical: int) -> int:
        """Map the first block that nobody uses."""
        block = self.uses().index(0)
        self.blocks[seq_id, logical] = block
        self.tables.add((seq_id, logical // L2_PT_SIZE))
        return block

    def create_sequence(self, seq_id: int, length: int) -> str:
        """Task 2."""
        needed = -(-length // KV_PER_BLOCK)
        if length <= 0 or seq_id in self.order or needed > MAX_LOGICAL_BLOCKS or needed > self.uses().count(0):
            return "NULL"
        for logical in range(needed):
            self.take(seq_id, logical)
        self.order.append(seq_id)
        self.lengths[seq_id] = length
        return "seq"

    def free_sequence(self, seq_id: int) -> str:
        """Task 2."""
        if seq_id not in self.order:
            return "-1"
        uses = self.uses()
        for (owner, _), block in self.blocks.items():
            if owner == seq_id:
                self.met.add("still-shared" if uses[block] > 1 else "last-reference")
        self.look_at(seq_id)
        self.order.remove(seq_id)
        self.blocks = {key: block for key, block in self.blocks.items() if key[0] != seq_id}
        self.tables = {key for key in self.tables if key[0] != seq_id}
        return "0"

    def fork_sequence(self, parent: int, child: int) -> str:
        """Task 3."""
        if parent not in self.order or child in self.order:
            return "NULL"
        self.look_at(parent)
        self.blocks |= {(child, key[1]): block for key, block in self.blocks.items() if key[0] == parent}
        self.tables |= {(child, key[1]) for key in self.tables if key[0] == parent}
        self.lengths[child] = self.lengths[parent]
        self.order.append(child)
        return "seq"

    def append_kv(self, seq_id: int, kv_data: int) -> str:
        """Task 4."""
        if seq_id not in self.order or self.lengths[seq_id] >= KV_PER_BLOCK * MAX_LOGICAL_BLOCKS:
            return "-1"
        logical, offset = divmod(self.lengths[seq_id], KV_PER_BLOCK)
        old = self.blocks.get((seq_id, logical))
        uses = self.uses()
        if old is None:
            self.met |= {"new-page", *(["mid-block"] if offset else [])}
            self.met |= set() if (seq_id, logical // L2_PT_SIZE) in self.tables else {"l2-missing"}
        else:
            self.met.add("in-place" if uses[old] == 1 else "copy-on-write")
        if old is None or uses[old] > 1:
            if 0 not in uses:
                return "-1"
            new = self.take(seq_id, logical) if old is None else uses.index(0)
            if old is not None:
                for word in range(KV_PER_BLOCK):
                    self.words[_place(new) + word] = self.words[_place(old) + word]
                self.blocks[seq_id, logical] = new
        self.words[_place(self.blocks[seq_id, logical]) + offset] = kv_data % 2**32
        self.lengths[seq_id] += 1
        return "0"

    def llm_destroy(self) -> str:
        """Task 5: the pool stays as it is."""
        self.met |= {"live-sequences"} if self.order else set()
        self.alive = False
        self.order, self.blocks, self.tables = [], {}, set()
        return "0"

    def move_l2(self, seq_id: int, source: int, target: int) -> str:
        """Poke: hang an L2 table into an empty slot."""
        if seq_id not in self.order or (seq_id, source) not in self.tables or (seq_id, target) in self.tables:
            raise Misfit
        self.tables = self.tables - {(seq_id, source)} | {(seq_id, target)}
        for entry in range(L2_PT_SIZE):
            block = self.blocks.pop((seq_id, L2_PT_SIZE * source + entry), None)
            if block is not None:
                self.blocks[seq_id, L2_PT_SIZE * target + entry] = block
        return ""

    def unmap(self, seq_id: int, logical: int) -> str:
        """Poke: forget one mapping; its L2 table stays."""
        if (seq_id, logical) not in self.blocks:
            raise Misfit
        del self.blocks[seq_id, logical]
        return ""

    def set_kv_count(self, seq_id: int, kv_count: int) -> str:
        """Poke: pretend another length."""
        if seq_id not in self.order:
            raise Misfit
        self.lengths[seq_id] = kv_count
        return ""

    def look_at(self, seq_id: int) -> None:
        """Note what is unusual in the tables of a sequence."""
        slots = sorted(l1 for owner, l1 in self.tables if owner == seq_id)
        if slots != list(range(len(slots))):
            self.met.add("holes")
        for l1 in slots:
            entries = [entry for entry in range(L2_PT_SIZE) if (seq_id, L2_PT_SIZE * l1 + entry) in self.blocks]
            if not entries or entries != list(range(len(entries))):
                self.met.add("unmapped-entries")

    def state(self) -> dict[str, Any]:
        """The pool, and the engine on it."""
        region = array("i", array("I", self.words).tobytes()).tolist()
        return {"pool_bytes": self.pool_bytes, "region": region, "engine": self._engine() if self.alive else None}

    def _engine(self) -> dict[str, Any]:
        uses = self.uses()
        return {
            "total_local_blocks": len(uses),
            "free_local_blocks": uses.count(0),
            "ref_count": uses,
            "active_seqs": list(self.order),
            "sequences": {
                str(seq_id): {
                    "kv_count": self.lengths[seq_id],
                    "block_table": [
                        [self.blocks.get((seq_id, L2_PT_SIZE * l1 + entry), -1) for entry in range(L2_PT_SIZE)]
                        if (seq_id, l1) in self.tables
                        else None
                        for l1 in range(L1_PT_SIZE)
                    ],
                }
                for seq_id in self.order
            },
        }


class Naive:
    """All engines of a trace."""

    def __init__(self, seed: int, slots: int) -> None:
        self.seed = seed
        self.slots: list[NaiveEngine | None] = [None] * slots

    def apply(self, target: int | None, name: str, arguments: Arguments) -> str:
        """Do one call or poke and return its reply in the words of a case file."""
        if name == "llm_init":
            text = self._init(target or 1, arguments)
        else:
            engine = None if target is None else self.slots[target - 1]
            if engine is not None and engine.alive:
                text = str(getattr(engine, name)(*arguments))
            elif name in ("move_l2", "unmap", "set_kv_count"):
                raise Misfit
            else:
                text = "NULL" if name in ("create_sequence", "fork_sequence") else "-1"
        return text

    def state(self) -> dict[str, Any]:
        """All engines and pools, by number."""
        return {str(number): slot.state() for number, slot in enumerate(self.slots, 1) if slot is not None}

    def met(self) -> set[str]:
        """What was special about the calls so far."""
        return set().union(*(slot.met for slot in self.slots if slot is not None))

    def _init(self, target: int, arguments: Arguments) -> str:
        if arguments[0] is None:
            return "NULL"
        engine = NaiveEngine(self.seed, target, arguments[0])
        before = self.slots[target - 1]
        engine.met = before.met if before is not None else set()
        self.slots[target - 1] = engine
        return "engine" if engine.alive else "NULL"
