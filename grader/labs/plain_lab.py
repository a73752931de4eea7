"""For labs whose states are plain values: pictures of states, and small engines.

The facets of a lab define its pictures. A lab describes a small engine by operation lines, as in a case file; each line
is tried in each state. The lab's `Remember` skips a line in states for which the handout leaves its result open. Two
states are merged if the oracle's states are equal and the caller remembers the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from grader.core.case import Signature
from grader.core.model import ABSENT, UNREADABLE, Codec, at, entries, is_unreadable
from grader.core.picture import PanelShape, StatePart
from grader.core.rubric import Facet
from grader.judge.plain_judge import JSON, record_of
from reference.operation import Operation, Reply
from reference.oracle import CannotGoOn, Oracle, text_of


def picture(facets: Sequence[Facet], record: dict[str, Any]) -> Iterator[StatePart]:
    """Draw a decoded record: entries of one kind as a grid, lists as chains or sentences, other values by name."""
    state = record["state"]
    values = {facet: at(state, facet.steps[1:]) for facet in facets if facet.steps[0] == "state"}
    alone = {
        (0, facet.heading): (_cell(value),)
        for facet, value in values.items()
        if not facet.per and not isinstance(value, list)
    }
    if alone:
        yield StatePart(title="values", shape=PanelShape.VALUES, lines=alone)
    for per in dict.fromkeys(facet.per for facet in values if facet.per):
        yield _grid(per, {facet: value for facet, value in values.items() if facet.per == per})
    for facet, value in values.items():
        if facet.per or not isinstance(value, list):
            continue
        if not facet.sentences:
            yield StatePart(title=facet.heading, shape=PanelShape.CHAIN, lines={(0, ""): tuple(map(_cell, value))})
        elif value:
            lines = {(0, str(number)): (str(sentence),) for number, sentence in enumerate(value)}
            yield StatePart(title=facet.heading, shape=PanelShape.SENTENCES, lines=lines)


def _grid(per: str, values: Mapping[Facet, Any]) -> StatePart:
    """Return a grid with a row for each entry and a column for each facet."""
    columns = {facet: entries(value) for facet, value in values.items()}
    keys = dict.fromkeys(key for column in columns.values() for key in column)
    return StatePart(
        title=f"by {per}",
        shape=PanelShape.GRID,
        columns=tuple(facet.heading for facet in columns),
        lines={
            (0, f"{per} {key}"): tuple(_cell(column[key]) if key in column else "" for column in columns.values())
            for key in keys
        },
    )


def _cell(value: Any) -> str:
    if is_unreadable(value):
        return f"unreadable ({value[UNREADABLE]})"
    return text_of(None if value is ABSENT else value)


State = dict[str, Any]

Remember = Callable[[Any, State, Operation], Any]
"""A function of what the caller remembered before a call, the state before it, and the call. It returns what the caller
remembers afterwards, or None if the caller does not make this call. After the opening the caller remembers ()."""


def always(memory: object, state: State, operation: Operation) -> object:  # noqa: ARG001 - see `Remember`
    """Allow every call. Return what the caller remembers unchanged."""
    return memory


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallLines:
    """A lab's description of a small engine."""

    opening: str
    lines: Sequence[str]
    most: int
    """The number of transitions after which no further state is visited."""
    remember: Remember = always
    passing: frozenset[str] = frozenset()
    """The parts of a state that describe only the last call."""


def small_engines(
    place: str, operations: Mapping[str, Signature], oracle: str, codec: Codec = JSON
) -> list[SmallPlain]:
    """Return the small engines at "module:name" of a lab with these operations and the oracle at "module:factory"."""
    (module, name), (home, factory) = place.split(":"), oracle.split(":")
    all_lines: Sequence[SmallLines] = getattr(import_module(module), name)
    return [SmallPlain(lines, operations, getattr(import_module(home), factory)(), codec) for lines in all_lines]


def read_line(operations: Mapping[str, Signature], line: str) -> Operation:
    """Return the operation of a line without claim. Raises `KeyError` or `ValueError` if the line is wrong."""
    name, *words = line.split(" ")
    arguments = zip(operations[name].arguments, words, strict=True)
    return Operation(name=name, arguments=tuple(argument.read(word) for argument, word in arguments))


@dataclass(slots=True)
class SmallPlain:
    """A small engine made of a lab's `SmallLines`; see `grader.core.closure.SmallEngine`."""

    lines: SmallLines
    operations: Mapping[str, Signature]
    _engine: Oracle
    codec: Codec = JSON
    calls: Sequence[Operation] = field(init=False)
    _state: State = field(init=False, default_factory=dict)
    _memory: Any = field(init=False, default=())

    def __post_init__(self) -> None:
        """Make the calls: read the opening and the other lines of the description."""
        self.calls = [read_line(self.operations, line) for line in (self.lines.opening, *self.lines.lines)]

    @property
    def most(self) -> int:
        """The number of transitions after which no further state is visited."""
        return self.lines.most

    def apply(self, operation: Operation) -> Reply:
        """Do a call. Raises `CannotGoOn` if it breaks a rule for callers, or an argument names something unknown."""
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
        """Return the state of the oracle, and what the caller remembers."""
        return self._state, self._memory

    def restore(self, state: Any) -> None:
        """Set the state to one that `state` returned."""
        self._state, self._memory = state
        self._engine.restore(self._state)

    def record(self, operation: Operation, reply: Reply) -> bytes:  # noqa: ARG002 - a record does not name its call
        """Return the record of the reply and the state."""
        return record_of(reply, self._state, self.codec)

    def essence(self, record: bytes) -> bytes:  # noqa: ARG002 - the state suffices
        """Return the state without its passing parts, and what the caller remembers."""
        lasting = {name: value for name, value in self._state.items() if name not in self.lines.passing}
        return repr((text_of(lasting), self._memory)).encode()
