"""A case of `paged_kv`, played by the reference up to a cut: all that its C program has to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from grader.core.case import Case
from reference.operation import Operation, Reply
from reference.paged_kv.model import PagedKV
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK

__all__ = ["Played", "Pool", "Story", "engine_name", "integer"]


class Pool(NamedTuple):
    """A pool of the program: the variables for what is in it and for what must be in it, and its size."""

    memory: str
    want: str
    pool_bytes: int

    @property
    def blocks(self) -> int:
        """Physical blocks, rounded down."""
        return self.pool_bytes // BLOCK_SIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One operation, with what the reference made of it."""

    number: int
    operation: Operation
    reply: Reply
    pool: Pool | None
    declares: bool = False
    """Is it the first engine of this number?"""
    stored: tuple[int, int] | None = None
    """Block and slot of the KV record."""
    copied: tuple[int, int] | None = None
    """Old and new block of a copy-on-write."""
    unmapped: tuple[int, bool] | None = None
    """The block that a poke gives back, and whether that was its last reference."""

    @property
    def text(self) -> str:
        """The operation as the case file writes it."""
        return f"{self.operation} -> {self.reply.text}" if self.reply.text else str(self.operation)

    @property
    def accepted(self) -> bool:
        """Is it a call that does what it was made for?"""
        return bool(self.reply.text) and not self.reply.refused

    @property
    def shape(self) -> tuple[object, ...]:
        """Operations of one shape may share a loop: neighbours that come from one `repeat` line."""
        operation = self.operation
        if operation.name in ("llm_init", "llm_destroy") or self.copied or self.unmapped:
            return (self.number,)
        return (operation.line, operation.name, operation.target, self.reply.text, self.reply.clause)

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a loop may count: the arguments, then block and slot of the KV record."""
        arguments = tuple(argument for argument in self.operation.arguments if isinstance(argument, int))
        return arguments + (self.stored or ())


class Story:
    """A case's operations up to and with number `operation` (counted from 0), and the state after them."""

    def __init__(self, case: Case, operation: int) -> None:
        self.model = PagedKV(case.trace)
        self.pools: list[Pool] = []
        """One for every call of llm_init that gets a pool."""
        self.current: dict[int, Pool] = {}
        """The pool that each engine number has now."""
        told = case.trace.operations[: operation + 1]
        self.played: list[Played] = []
        for one in told:
            self.played.append(self._play(one))
        self.last = self.played[-1]

    def _play(self, operation: Operation) -> Played:
        name, target = operation.name, operation.target or 0
        unmapped = self._unmapped(operation) if name == "unmap" else None
        first = not any(one.declares and one.operation.target == target for one in self.played)
        reply = self.model.apply(operation)
        if name == "llm_init" and None not in operation.arguments:
            suffix = str(len(self.pools) + 1) if self.pools else ""
            self.current[target] = Pool(f"memory{suffix}", f"want{suffix}", integer(operation.arguments[0]))
            self.pools.append(self.current[target])
        outcome = self.model.outcome
        stored = None if outcome.stored is None else divmod(outcome.stored, KV_PER_BLOCK)
        return Played(
            number=len(self.played),
            operation=operation,
            reply=reply,
            pool=self.current.get(target),
            declares=name == "llm_init" and not reply.refused and first,
            stored=stored,
            copied=outcome.copied,
            unmapped=unmapped,
        )

    def _unmapped(self, operation: Operation) -> tuple[int, bool]:
        seq_id, logical = map(integer, operation.arguments)
        engine = self.model.engines[operation.target or 0]
        block = engine.active_seqs[seq_id].block_at(logical)
        return block, engine.ref_count[block] == 1


def engine_name(number: int | None) -> str:
    """The variable of an engine; NULL is the engine that is none."""
    return "NULL" if number is None else "engine" if number == 1 else f"engine{number}"


def integer(argument: object) -> int:
    """An argument that is a number."""
    assert isinstance(argument, int)
    return argument
