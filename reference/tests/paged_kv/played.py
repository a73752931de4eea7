"""A model played by the lines of a case file, with short ways to look at what its record says."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import MethodType

from reference.operation import NULL, Operation, Reply, Trace
from reference.paged_kv import Engine, PagedKV
from reference.paged_kv.record import EngineState, RecordState, SequenceState, Slot, decode

__all__ = ["GUARD_WORDS", "SEED", "TOUR", "Played", "operation", "take_by"]

SEED = 20110
_MOST_SEQUENCES = 20
GUARD_WORDS = 16  # 64 bytes before the pool and 64 behind it

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
    """A model with engine @1 over a pool of `blocks` blocks (None: no engine yet)."""

    def __init__(self, blocks: int | None = 4, *, engines: int = 1, seed: int = SEED) -> None:
        uses_all = Operation(name="llm_destroy", target=engines)
        makes = Operation(name="create_sequence")  # a record lists no more sequences than a trace makes, and a few
        self.model = PagedKV(Trace(operations=(uses_all, *[makes] * _MOST_SEQUENCES), settings={"seed": seed}))
        self.engines = engines
        if blocks is not None:
            self.do(f"llm_init {64 * blocks}")

    def do(self, *lines: str) -> Reply:
        """Apply the lines and return the last reply."""
        replies = [self.model.apply(operation(line)) for line in lines]
        return replies[-1]

    def record(self) -> bytes:
        """The record after the last line."""
        return self.model.record()

    def body(self) -> bytes:
        """The record without the two words of its reply."""
        return self.record()[8:]

    @property
    def state(self) -> RecordState:
        """The record, decoded."""
        return decode(self.record(), self.engines)

    def slot(self, number: int = 1) -> Slot:
        """One engine with its pool."""
        return self.state.slots[number - 1]

    def engine(self, number: int = 1) -> EngineState:
        """One living engine."""
        engine = self.slot(number).engine
        assert engine is not None, f"engine @{number} does not live"
        return engine

    def ref_count(self, number: int = 1) -> list[int]:
        """The whole `ref_count` array."""
        return list(self.engine(number).ref_count)

    def free(self, number: int = 1) -> int:
        """The engine's `free_local_blocks`."""
        return self.engine(number).free_local_blocks

    def ids(self, number: int = 1) -> list[int]:
        """The ids of `active_seqs`, in list order."""
        return [sequence.seq_id for sequence in self.engine(number).sequences]

    def sequence(self, seq_id: int, number: int = 1) -> SequenceState:
        """One sequence of an engine."""
        return next(sequence for sequence in self.engine(number).sequences if sequence.seq_id == seq_id)

    def mapped(self, seq_id: int, number: int = 1) -> dict[int, int]:
        """Logical block -> physical block, of the mapped ones."""
        return {
            16 * l1 + l2: block
            for l1, table in enumerate(self.sequence(seq_id, number).tables)
            for l2, block in enumerate(table or ())
            if block != -1
        }

    def l2_slots(self, seq_id: int, number: int = 1) -> list[int]:
        """The L1 slots that hold an L2 table."""
        return [l1 for l1, table in enumerate(self.sequence(seq_id, number).tables) if table is not None]

    def words(self, number: int = 1) -> list[int]:
        """All words of the pool's region as ints, guards included."""
        return list(array("i", self.slot(number).region))

    def block(self, block: int, number: int = 1) -> list[int]:
        """The 16 words of a physical block."""
        first = GUARD_WORDS + 16 * block
        return self.words(number)[first : first + 16]


def take_by(played: Played, choose: Callable[[Engine, int], list[int]]) -> None:
    """Let engine @1 choose free blocks in this way, in the place of first-fit."""
    engine = played.model.engines[1]
    engine.first_fit = MethodType(choose, engine)  # type: ignore[method-assign]
