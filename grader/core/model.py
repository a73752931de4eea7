"""`Model`, the reference engine with which the grader compares a program; `play` for a trace; and plain values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from grader.core.judgement import Judgement
from reference.operation import Operation, Reply, Trace
from reference.oracle import CannotGoOn, Plain


class CannotFollow(CannotGoOn):
    """The next state is defined, but this copy of the grader has no reference engine to compute it."""


class Access(Enum):
    """The kind of access that an operation needs to bytes."""

    READ = "read"
    WRITE = "write"


class MemorySpan(NamedTuple):
    """Bytes of the memory that the harness lends to an engine. One operation may touch these bytes."""

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
        """Return the parts of the memory lent to engines that the last operation, judged or applied, may touch."""

    def worked(self) -> frozenset[str]:
        """Return the facets in which the last applied operation did something (grader.judge.work); it may be empty."""

    def restore(self, record: bytes) -> None:
        """Set the state to that of a record. Raises `CannotGoOn` if the state is too broken to continue from."""

    def judge(self, before: bytes | None, operation: Operation, actual: bytes) -> Judgement:
        """Compare `actual` with the record that the operation should lead to from `before` (None: the start).

        If `before` was the record judged last, the reference's values replace impossible values in it. Raises
        `CannotGoOn` if the next state is still undefined, `CannotPoke` if a poke does not fit.
        """

    def compared(self) -> bytes:
        """Return the expected record of the last judged operation.

        Each place where the program's record differs from this one is a difference that `judge` reported, or a
        consequence of a wrong reply. Raises `CannotGoOn` if there is no such record.
        """

    def describe(self, record: bytes) -> dict[str, object]:
        """Return a record as plain values, by their names in the handout. Raises `CannotGoOn` for invalid bytes."""


ModelFactory = Callable[[Trace], Model]
"""Makes the model for one trace. The trace has the settings, and shows which engines the model needs."""


def play(model: Model, trace: Trace) -> Iterator[Step]:
    """Apply the operations of `trace` in order and yield a step for each."""
    for operation in trace.operations:
        reply = model.apply(operation)
        yield Step(operation, reply, model.record(), model.allowed(), model.worked())


UNREADABLE = "!"
"""The key of {"!": REASON}, the object that replaces a value that could not be read."""

EACH = "*"
"""The step of a path that matches each entry of a list or an object."""

ABSENT: Final = object()
"""The value at a path that does not exist."""


class Codec(NamedTuple):
    """Converts the plain values of a record to bytes and back. Equal values are equal bytes."""

    encode: Callable[[dict[str, Plain]], bytes]
    decode: Callable[[bytes], Any]
    """Raises `CannotGoOn` for bytes that are not a record."""


def is_unreadable(value: object) -> bool:
    """Whether a value marks a part that could not be read, with the reason."""
    return isinstance(value, dict) and value.keys() == {UNREADABLE}


def child(value: object, key: str) -> object:
    """Return the entry of a list or an object, ABSENT if there is none."""
    if isinstance(value, list) and key.isdecimal():
        return value[int(key)] if int(key) < len(value) else ABSENT
    return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT


def at(value: object, steps: Sequence[str]) -> object:
    """Return the value at a path. A star gives an object: for each key, the value at the rest of the path."""
    for number, step in enumerate(steps):
        if step == EACH:
            return {key: at(entry, steps[number + 1 :]) for key, entry in entries(value).items()}
        value = child(value, step)
    return value


def entries(value: object) -> dict[str, object]:
    """Return the entries of a list or an object by their keys; {} for any other value."""
    if isinstance(value, list):
        return {str(number): entry for number, entry in enumerate(value)}
    return value if isinstance(value, dict) and not is_unreadable(value) else {}


def without(value: object, keys: Collection[str]) -> object:
    """Return a list or an object without the entries of these keys, or another value unchanged; [] for key `EACH`."""
    if EACH in keys:
        return []
    if isinstance(value, list):
        return [item for place, item in enumerate(value) if str(place) not in keys]
    return {key: item for key, item in value.items() if key not in keys} if isinstance(value, dict) else value
