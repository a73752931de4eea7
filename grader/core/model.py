"""The protocol by which the grader compares a program with a reference, and how to play a trace with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from grader.core.judgement import Judgement
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn


class CannotFollow(CannotGoOn):
    """The next state is defined, but this copy of the grader has no reference engine to compute it."""


class Access(Enum):
    """The kind of access that an operation needs to bytes."""

    READ = "read"
    WRITE = "write"


class MemorySpan(NamedTuple):
    """Bytes of the memory lent to an engine that one operation may touch."""

    target: int
    """The number of the engine."""
    start: int
    length: int
    access: Access


class Step(NamedTuple):
    """An operation, its reply, the record after it, the memory that it may touch, and the facets that it worked on."""

    operation: Operation
    reply: Reply
    record: bytes
    allowed: tuple[MemorySpan, ...]
    worked: frozenset[str]
    """The facets of the record in which the operation did something."""


class Model(Protocol):
    """A reference engine as the grader sees it. A record is canonical: equal bytes are equal states.

    After a method raised an exception the state is undefined; `restore` and `judge` set it again.
    """

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. Raises `CannotPoke` when a poke does not fit, `CannotGoOn` in a broken state."""

    def record(self) -> bytes:
        """Return everything that a white-box test may see after the last operation."""

    def allowed(self) -> tuple[MemorySpan, ...]:
        """Return the bytes of lent memory that the last operation (judged or applied) may touch, and no others."""

    def worked(self) -> frozenset[str]:
        """Return the facets in which the last applied operation did something; empty if the lab does not use them."""

    def restore(self, record: bytes) -> None:
        """Set the state to that of a record. Raises `CannotGoOn` if the state is too broken to continue from."""

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare `actual` with the record that the operation should lead to from `before` (None: the start).

        If `before` was the record judged last, impossible values in it are replaced by the reference's. Raises
        `CannotGoOn` if the next state is undefined even so, `CannotPoke` if a poke does not fit.
        """

    def compared(self) -> bytes:
        """Return the expected record of the last judged operation.

        Wherever the program's record differs from it, `judge` reported a difference, or the difference follows from a
        wrong reply. Raises `CannotGoOn` if there is no such record.
        """

    def describe(self, record: bytes) -> dict[str, object]:
        """Return a record as plain values, by their names in the handout. Raises `CannotGoOn` for invalid bytes."""


ModelFactory = Callable[[Trace], Model]
"""Makes the model for one trace, which tells it the settings and the engines that it needs."""


def play(model: Model, trace: Trace) -> Iterator[Step]:
    """Apply the operations of `trace` in order and yield a step for each."""
    for operation in trace.operations:
        reply = model.apply(operation)
        yield Step(operation, reply, model.record(), model.allowed(), model.worked())
