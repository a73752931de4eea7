"""Small engines of labs whose states are plain: lines of a case file that are tried in each state.

What the handout leaves open must not be among them, so a lab says with `Remember` where a line is not tried. Merged
states are those of the oracle, with what the caller remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from grader.core.case import Signature
from grader.core.plain import Codec
from grader.judge.plain_judge import JSON, record_of
from reference.operation import Operation, Reply
from reference.oracle import CannotGoOn, Oracle, text_of

State = dict[str, Any]

Remember = Callable[[Any, State, Operation], Any]
"""What a caller remembers after a call, of what it remembered before, the state before, and the call; None where it
would not make this call. After the opening it remembers ()."""


def always(memory: object, state: State, operation: Operation) -> object:  # noqa: ARG001 - see `Remember`
    """Remember nothing, and make any call."""
    return memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallLines:
    """What a lab says of a small engine."""

    opening: str
    lines: Sequence[str]
    most: int
    """After so many transitions no further state is looked at."""
    remember: Remember = always
    passing: frozenset[str] = frozenset()
    """The parts of a state that only tell of the last call."""


def small_engines(
    place: str, operations: Mapping[str, Signature], oracle: str, codec: Codec = JSON
) -> list[SmallPlain]:
    """Return the small engines at "module:name" of a lab with these operations and the oracle at "module:factory"."""
    (module, name), (home, factory) = place.split(":"), oracle.split(":")
    all_lines: Sequence[SmallLines] = getattr(import_module(module), name)
    return [SmallPlain(lines, operations, getattr(import_module(home), factory)(), codec) for lines in all_lines]


def read_line(operations: Mapping[str, Signature], line: str) -> Operation:
    """Return the operation of a line without claim. Raises `KeyError` or `ValueError` for what is none."""
    name, *words = line.split(" ")
    arguments = zip(operations[name].arguments, words, strict=True)
    return Operation(name=name, arguments=tuple(argument.read(word) for argument, word in arguments))


@dataclass(slots=True)
class SmallPlain:
    """See `grader.core.closure.SmallEngine`."""

    lines: SmallLines
    operations: Mapping[str, Signature]
    _engine: Oracle
    codec: Codec = JSON
    calls: Sequence[Operation] = field(init=False)
    _state: State = field(init=False, default_factory=dict)
    _memory: Any = field(init=False, default=())

    def __post_init__(self) -> None:
        """Read the lines."""
        self.calls = [read_line(self.operations, line) for line in (self.lines.opening, *self.lines.lines)]

    @property
    def most(self) -> int:
        """That of the lines."""
        return self.lines.most

    def apply(self, operation: Operation) -> Reply:
        """Do a call. Raises `CannotGoOn` where the caller does not make it, or it names what is not there."""
        memory = self._memory
        if operation is not self.calls[0]:
            memory = self.lines.remember(memory, self._state, operation)
        if memory is None:
            raise CannotGoOn
        try:
            reply = self._engine.apply(operation)
        except KeyError as error:
            raise CannotGoOn from error
        self._state, self._memory = self._engine.state(), memory
        return reply

    def state(self) -> object:
        """The state of the oracle, and what the caller remembers."""
        return self._state, self._memory

    def restore(self, state: Any) -> None:
        """Take over such a state."""
        self._state, self._memory = state
        self._engine.restore(self._state)

    def record(self, operation: Operation, reply: Reply) -> bytes:  # noqa: ARG002 - a record does not name its call
        """The reply and the state."""
        return record_of(reply, self._state, self.codec)

    def essence(self, record: bytes) -> bytes:  # noqa: ARG002 - it is that of the state
        """All parts of the state but those that only tell of the last call, and what the caller remembers."""
        lasting = {name: value for name, value in self._state.items() if name not in self.lines.passing}
        return repr((text_of(lasting), self._memory)).encode()
