"""A model played by the lines of a case file, with short ways to look at what its record says."""

from __future__ import annotations

from array import array

from grader.labs.paged_kv.judging.model import PagedKVModel
from grader.labs.paged_kv.judging.record import EngineState, RecordState, SequenceState, Slot, decode
from reference.operation import Operation, Reply, Trace
from reference.paged_kv.constants import BLOCK_SIZE
from reference.tests.paged_kv.played import SEED, operation

_MOST_SEQUENCES = 20


class Played:
    """A model with engine @1 over a pool of `blocks` blocks (None: no engine yet)."""

    def __init__(self, blocks: int | None = 4, *, engines: int = 1) -> None:
        uses_all = Operation(name="llm_destroy", target=engines)
        makes = Operation(name="create_sequence")  # a record lists no more sequences than a trace makes, and a few
        self.model = PagedKVModel(Trace(operations=(uses_all, *[makes] * _MOST_SEQUENCES), settings={"seed": SEED}))
        self.engines = engines
        if blocks is not None:
            self.do(f"llm_init {BLOCK_SIZE * blocks}")

    def do(self, *lines: str) -> Reply:
        """Apply the lines and return the last reply."""
        replies = [self.model.apply(operation(line)) for line in lines]
        return replies[-1]

    def record(self) -> bytes:
        """The record after the last line."""
        return self.model.record()

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

    def sequence(self, seq_id: int, number: int = 1) -> SequenceState:
        """One sequence of an engine."""
        return next(sequence for sequence in self.engine(number).sequences if sequence.seq_id == seq_id)

    def words(self, number: int = 1) -> list[int]:
        """All words of the pool's region as ints, guards included."""
        return list(array("i", self.slot(number).region))
