"""A model played by the lines of a case file, and its record."""

from __future__ import annotations

from collections.abc import Callable

from grader.labs.paged_kv.model import PagedKVModel
from grader.labs.paged_kv.states import State
from grader.runtime.native import values
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
    def state(self) -> State:
        """All engines and pools after the last line, by number."""
        state: State = self.model.oracle.state()
        return state

    def edited(self, edit: Callable[[State], None]) -> bytes:
        """The record, wrong where `edit` makes it wrong."""
        record = values.decode(self.record())
        edit(record)
        return values.encode(record)
