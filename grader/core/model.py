"""The protocol by which the grader compares a program with a reference, and how to play a trace with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from grader.core.judgement import Judgement
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn


class CannotFollow(CannotGoOn):
    """Something follows from the state of a program, but this copy of the grader does not know what."""


class Access(Enum):
    """What an operation needs bytes for."""

    READ = "read"
    WRITE = "write"


class MemorySpan(NamedTuple):
    """Bytes of the memory that was handed to an engine, which one operation may touch."""

    target: int
    """The number of the engine."""
    start: int
    length: int
    access: Access


class Step(NamedTuple):
    """An operation, its reply, the record after it, what it may touch, and what it did."""

    operation: Operation
    reply: Reply
    record: bytes
    allowed: tuple[MemorySpan, ...]
    worked: frozenset[str]
    """The facets of the record in which it did something."""


class Model(Protocol):
    """A reference engine as the grader sees it. A record is canonical: equal bytes are equal states.

    A function that raises may leave it in no state at all; `restore` and `judge` bring it into one again.
    """

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. Raises `CannotPoke` when a poke does not fit, `CannotGoOn` in a broken state."""

    def record(self) -> bytes:
        """All that a white-box test may see after the last operation."""

    def allowed(self) -> tuple[MemorySpan, ...]:
        """The only bytes handed to an engine that the last operation (judged or applied) may touch."""

    def worked(self) -> frozenset[str]:
        """The facets in which the last operation that was applied did something, where rules ask for that."""

    def restore(self, record: bytes) -> None:
        """Take over the state of a record. Raises `CannotGoOn` when it is too broken to continue from."""

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare `actual` with what the operation should have made of `before` (None: the start).

        What cannot be in `before` counts as the reference's value, if `before` was judged last. Raises `CannotGoOn`
        when nothing follows from what is left, `CannotPoke` when a poke does not fit.
        """

    def compared(self) -> bytes:
        """The record with which the operation that was judged last was compared: every place where the program's own
        record differs from it is one that `judge` calls wrong, or follows from a wrong reply. Raises `CannotGoOn` when
        there is no such record.
        """

    def describe(self, record: bytes) -> dict[str, object]:
        """The record, readable: plain values by their names in the handout. Raises `CannotGoOn` when it is none."""


ModelFactory = Callable[[Trace], Model]
"""Makes the model for one trace: settings and the engines that it uses are known from the start."""


def play(model: Model, trace: Trace) -> Iterator[Step]:
    """Apply the operations of `trace` one after the other and yield a step for each."""
    for operation in trace.operations:
        reply = model.apply(operation)
        yield Step(operation, reply, model.record(), model.allowed(), model.worked())
