"""What the grader knows of a reference engine: six functions, and how to play a trace with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from reference.operation import Operation, Reply, Trace

__all__ = [
    "COPIED_MEMORY",
    "NEVER_SET",
    "SENTENCE",
    "SHARED_MEMORY",
    "STILL_EMPTY",
    "UNFILLED",
    "Access",
    "CannotFollow",
    "CannotGoOn",
    "CannotPoke",
    "Difference",
    "Judgement",
    "Model",
    "ModelFactory",
    "Span",
    "Step",
    "play",
]

SHARED_MEMORY = "shared-memory"
"""Tag of a difference in the memory that `Model.allowed` speaks of: somebody stored into it, or did not."""

COPIED_MEMORY = "copied-memory"
"""Tag of such a difference where the operation should have put what it read elsewhere in that memory."""

UNFILLED = "fill"
"""Tag of a difference in what an allocation holds where nothing was to be put."""

NEVER_SET = "never-set"
"""Tag of a difference where the program's memory still holds what it held when it was allocated."""


SENTENCE = "sentence"
"""Tag of a difference that says itself what is wrong, so that "must be ..., not ..." tells nothing."""


STILL_EMPTY = "none-stored"
"""Tag of a difference where something belongs and only the mark for nothing stands, such as NULL."""


class CannotGoOn(Exception):
    """Nothing follows from the state taken over from a program; the message says what about it cannot be."""


class CannotFollow(CannotGoOn):
    """Something follows from the state of a program, but this copy of the grader does not know what."""


class CannotPoke(Exception):
    """A poke does not fit the state it meets."""


class Access(Enum):
    """What an operation needs bytes for."""

    READ = "read"
    WRITE = "write"


class Span(NamedTuple):
    """Bytes of the memory that was handed to an engine, which one operation may touch."""

    target: int
    """The number of the engine."""
    start: int
    length: int
    access: Access


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place where a program's record is not what it should be.

    `facet` names the part of the record, `field` the place in it in the handout's words. `tags` refine it for the
    diagnosis.
    """

    facet: str
    field: str
    expected: str
    actual: str
    tags: frozenset[str] = frozenset()
    note: str = ""
    """A sentence more, such as what changed although another thing was asked for."""
    entry: str = ""
    """The entry of a facet of many, such as the number of a block."""
    place: str = ""
    """The place in the record that holds the wrong value, where `field` does not name it."""
    said: str = ""
    """What is wrong, in a sentence of its own, where "field is actual, expected" is not the way to say it."""

    @property
    def seen(self) -> str:
        """What is wrong, in one sentence."""
        return self.said or f"{self.field} is {self.actual}, expected {self.expected}"

    @property
    def in_words(self) -> str:
        """The field as a part of a sentence: "kv_count of sequence 1" for "sequence 1: kv_count"."""
        return " of ".join(reversed(self.field.split(": ")))

    @property
    def wanted(self) -> str:
        """What must be there instead, in one sentence."""
        if self.tags & {NEVER_SET, SENTENCE}:
            return self.seen
        joint = "and is" if self.actual.startswith("not ") else "not"
        return f"{self.field} must be {self.expected}, {joint} {self.actual}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One operation of a program, judged from the state the program itself was in before it."""

    expected: Reply
    actual: Reply
    differences: tuple[Difference, ...]
    unchanged: bool = False
    """Whether the program left the state that it was in."""
    broken: tuple[str, ...] = ()
    """A sentence for each thing that can never be so, and is so since this operation."""


class Step(NamedTuple):
    """An operation, its reply, the record after it, and what it may touch."""

    operation: Operation
    reply: Reply
    record: bytes
    allowed: tuple[Span, ...]


class Model(Protocol):
    """A reference engine as the grader sees it. A record is canonical: equal bytes are equal states.

    A function that raises may leave it in no state at all; `restore` and `judge` bring it into one again.
    """

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. Raises `CannotPoke` when a poke does not fit, `CannotGoOn` in a broken state."""

    def record(self) -> bytes:
        """All that a white-box test may see after the last operation."""

    def allowed(self) -> tuple[Span, ...]:
        """The only bytes handed to an engine that the last operation (judged or applied) may touch."""

    def restore(self, record: bytes) -> None:
        """Take over the state of a record. Raises `CannotGoOn` when it is too broken to continue from."""

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare `actual` with what the operation should have made of `before` (None: the start).

        What cannot be in `before` counts as the reference's value, if `before` was judged last. Raises `CannotGoOn`
        when nothing follows from what is left, `CannotPoke` when a poke does not fit.
        """

    def describe(self, record: bytes) -> dict[str, object]:
        """The record, readable: plain values by their names in the handout. Raises `CannotGoOn` when it is none."""


ModelFactory = Callable[[Trace], Model]
"""Makes the model for one trace: settings and the engines that it uses are known from the start."""


def play(model: Model, trace: Trace) -> Iterator[Step]:
    """Apply the operations of `trace` one after the other and yield a step for each."""
    for operation in trace.operations:
        reply = model.apply(operation)
        yield Step(operation, reply, model.record(), model.allowed())
