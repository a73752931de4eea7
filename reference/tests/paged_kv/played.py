"""An oracle played by the lines of a case file, with short ways to look at its state."""

from __future__ import annotations

from typing import Any

from reference.operation import NULL, Operation, Reply, Trace
from reference.paged_kv import Engine, PagedKV
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, L2_PT_SIZE
from reference.paged_kv.pool import GUARD_WORDS
from reference.paged_kv.sequence import Sequence

SEED = 20110

TOUR = [
    "create_sequence 1 20",
    "@2 llm_init 200",
    "fork_sequence 1 2",
    "append_kv 2 -5",
    "move_l2 2 0 9",
    "@2 create_sequence 1 40",
    "unmap 1 0",
    "append_kv 7 1",
    "set_kv_count 1 300",
    "append_kv 1 9",
    "free_sequence 1",
    "@2 llm_destroy",
    "@NULL llm_destroy",
]
"""A walk through calls and pokes of two engines, after the first `llm_init`."""


def operation(line: str) -> Operation:
    """Read one operation as a case file writes it: `@2 create_sequence 1 5`."""
    words = line.split()
    target: int | None = 1
    if words[0].startswith("@"):
        number = words.pop(0)[1:]
        target = None if number == "NULL" else int(number)
    name, *arguments = words
    values = tuple(NULL if word == NULL else int(word) for word in arguments)
    return Operation(name=name, arguments=values, target=target)


class Played:
    """An oracle with engine @1 over a pool of `blocks` blocks (None: no engine yet)."""

    def __init__(self, blocks: int | None = 4) -> None:
        self.oracle = PagedKV(Trace(operations=(), settings={"seed": SEED}))
        if blocks is not None:
            self.do(f"llm_init {BLOCK_SIZE * blocks}")

    def do(self, *lines: str) -> Reply:
        """Apply the lines and return the last reply."""
        replies = [self.oracle.apply(operation(line)) for line in lines]
        return replies[-1]

    def state(self) -> dict[str, Any]:
        """All engines and pools after the last line."""
        return self.oracle.state()

    def engine(self, number: int = 1) -> Engine:
        """One living engine."""
        return self.oracle.engines[number]

    def ref_count(self, number: int = 1) -> list[int]:
        """The whole `ref_count` array."""
        return list(self.engine(number).ref_count)

    def free(self, number: int = 1) -> int:
        """The engine's `free_local_blocks`."""
        return self.engine(number).free_local_blocks

    def ids(self, number: int = 1) -> list[int]:
        """The ids of `active_seqs`, in list order."""
        return [sequence.seq_id for sequence in self.engine(number).active_seqs]

    def sequence(self, seq_id: int, number: int = 1) -> Sequence:
        """One sequence of an engine."""
        sequence = self.engine(number).find(seq_id)
        assert sequence is not None
        return sequence

    def mapped(self, seq_id: int, number: int = 1) -> dict[int, int]:
        """Logical block -> physical block, of the mapped ones."""
        return {
            L2_PT_SIZE * l1 + l2: block
            for l1, table in enumerate(self.sequence(seq_id, number).block_table)
            for l2, block in enumerate(table or ())
            if block != -1
        }

    def l2_slots(self, seq_id: int, number: int = 1) -> list[int]:
        """The L1 slots that hold an L2 table."""
        return [l1 for l1, table in enumerate(self.sequence(seq_id, number).block_table) if table is not None]

    def words(self, number: int = 1) -> list[int]:
        """All words of the pool's region as ints, guards included."""
        return list(self.oracle.pools[number].region)

    def block(self, block: int, number: int = 1) -> list[int]:
        """The words of a physical block."""
        first = GUARD_WORDS + KV_PER_BLOCK * block
        return self.words(number)[first : first + KV_PER_BLOCK]
