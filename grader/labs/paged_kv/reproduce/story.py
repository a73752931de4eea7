"""A case of `paged_kv`, run by the reference up to one operation: all data that its C program needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from grader.core.case import Case
from grader.labs.paged_kv.judging import effects
from reference.operation import NULL, Operation, Reply
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK
from reference.paged_kv.oracle import PagedKV


class Pool(NamedTuple):
    """A pool of the program: the variables for its content and for its expected content, and its size."""

    memory: str
    want: str
    pool_bytes: int

    @property
    def blocks(self) -> int:
        """The number of physical blocks, rounded down."""
        return self.pool_bytes // BLOCK_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One operation, with its result in the reference."""

    number: int
    operation: Operation
    reply: Reply
    pool: Pool | None
    declares: bool = False
    """Whether it makes the first engine of this number, so that the program declares the variable here."""
    stored: tuple[int, int] | None = None
    """Block and slot of the KV record."""
    copied: tuple[int, int] | None = None
    """Old and new block of a copy-on-write."""
    unmapped: tuple[int, bool] | None = None
    """The block that an `unmap` poke releases, and whether that was its last reference."""

    @property
    def text(self) -> str:
        """The operation as the case file writes it."""
        return f"{self.operation} -> {self.reply.text}" if self.reply.text else str(self.operation)

    @property
    def accepted(self) -> bool:
        """Whether it is a call that succeeds."""
        return bool(self.reply.text) and not self.reply.refused

    @property
    def shape(self) -> tuple[object, ...]:
        """The key for loops: neighbours of one shape, which come from one `repeat` line, may share a loop."""
        operation = self.operation
        if operation.name in ("llm_init", "llm_destroy") or self.copied or self.unmapped:
            return (self.number,)
        return (operation.line, operation.name, operation.target, self.reply.text, self.reply.clause)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that a loop may count: the arguments, then block and slot of the KV record."""
        arguments = tuple(argument for argument in self.operation.arguments if isinstance(argument, int))
        return arguments + (self.stored or ())


class Story:
    """A case's operations up to and including number `operation` (counted from 0), and the state after them."""

    def __init__(self, case: Case, operation: int) -> None:
        self.oracle = PagedKV(case.trace)
        self.pools: list[Pool] = []
        """One pool for every call of llm_init that gets a pool."""
        self.current: dict[int, Pool] = {}
        """The pool that each engine number has now."""
        operations = case.trace.operations[: operation + 1]
        self.played: list[Played] = []
        for next_operation in operations:
            self.played.append(self._play(next_operation))
        self.last = self.played[-1]

    def _play(self, operation: Operation) -> Played:
        name, target = operation.name, operation.target or 0
        unmapped = self._unmapped(operation) if name == "unmap" else None
        first = not any(step.declares and step.operation.target == target for step in self.played)
        did = effects.apply(self.oracle, operation)
        if name == "llm_init" and NULL not in operation.arguments:
            suffix = str(len(self.pools) + 1) if self.pools else ""
            self.current[target] = Pool(f"memory{suffix}", f"want{suffix}", operation.numbers[0])
            self.pools.append(self.current[target])
        stored = None if did.stored is None else divmod(did.stored, KV_PER_BLOCK)
        return Played(
            number=len(self.played),
            operation=operation,
            reply=did.reply,
            pool=self.current.get(target),
            declares=name == "llm_init" and not did.reply.refused and first,
            stored=stored,
            copied=did.copied,
            unmapped=unmapped,
        )

    def _unmapped(self, operation: Operation) -> tuple[int, bool]:
        seq_id, logical = operation.numbers
        engine = self.oracle.engines[operation.target or 0]
        sequence = engine.find(seq_id)
        assert sequence is not None
        block = sequence.block_at(logical)
        return block, engine.ref_count[block] == 1


def engine_name(number: int | None) -> str:
    """Return the variable of an engine; "NULL" when there is no engine."""
    return "NULL" if number is None else "engine" if number == 1 else f"engine{number}"
