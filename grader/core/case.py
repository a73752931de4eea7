"""The grammar of a lab's case files, and a case after it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grader.core.verdict import Visibility
from reference.model import ModelFactory, Span, Step
from reference.operation import Operation, Reply, Trace

__all__ = ["Case", "Expected", "Grammar", "Number", "Signature"]

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class Number:
    """An argument or a setting: its name in the handout and the values that a case may use."""

    name: str
    least: int = _INT_MIN
    most: int = _INT_MAX
    step: int = 1

    def __contains__(self, value: int) -> bool:
        return value in range(self.least, self.most + 1, self.step)

    @property
    def values(self) -> str:
        """The allowed values in words."""
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"from {self.least} to {self.most}{steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How an operation is written in a case file. `replies` is empty for a poke, for which no reply is claimed."""

    arguments: tuple[Number, ...]
    replies: tuple[str, ...] = ()
    null_first: bool = False
    """Whether NULL may be written before the arguments (`llm_init NULL 64`)."""
    null_target: bool = True
    """Whether the target may be `@NULL`."""
    opens: bool = False
    closes: bool = False
    task: str = ""
    """The handout's name for the task of writing it."""

    @property
    def is_poke(self) -> bool:
        """Whether it is not one of the handout's calls."""
        return not self.replies


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """The grammar of a lab's case files."""

    operations: Mapping[str, Signature]
    settings: Mapping[str, Number]
    """Numeric keys of the header that are specific to the lab, such as `pool_blocks`."""
    example: str
    """An operation line with a reply, for messages that say what to write."""
    most_targets: int
    clauses: Mapping[str, str]
    """The sentences of the handout that a case may name, with their text."""
    rules: tuple[str, ...]
    complete: Callable[[dict[str, int], list[Operation]], Iterator[tuple[str, str]]]
    """Adds the operations that a case omits; yields (key, message) for settings that do not fit."""
    model: ModelFactory


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference does in a case: for each operation its reply, the record after it, and what it may touch."""

    replies: tuple[Reply, ...]
    records: tuple[bytes, ...]
    allowed: tuple[tuple[Span, ...], ...]

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Expected:
        """Collect the steps of a played trace (`reference.model.play`)."""
        played = tuple(steps)
        return cls(
            replies=tuple(step.reply for step in played),
            records=tuple(step.record for step in played),
            allowed=tuple(step.allowed for step in played),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A complete case that was checked against the reference."""

    name: str
    """Folder and file name without extension, such as `append/first_append_after_fork`."""
    path: Path
    title: str
    handout: tuple[str, ...]
    rule: str
    visibility: Visibility
    weight: int
    trace: Trace
    expected: Expected = field(repr=False)
    """What the reference does in `trace`."""
