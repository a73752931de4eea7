"""What was observed of a program that played cases: each operation that returned, and how each case ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grader.core.case import Case
from grader.core.judgement import Difference
from grader.core.verdict import SourceLine, Verdict

_NO_LINES: Mapping[str, tuple[int, ...]] = {}

NO_TIME = "no-time"
"""The kind of an ending that says nothing about its own case: others used up the time for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A bad end of a case, in the words of the runtime that observed it."""

    kind: str
    """The word for it in findings, such as "crash"."""
    verdict: Verdict
    sentence: str
    """What happened, with the name of the call."""
    lines: tuple[SourceLine, ...] = ()
    """The submission's lines, the one to look at first."""
    detail: str = ""
    """A finer word for it, by which known mistakes recognise it; empty: the kind."""


@dataclass(slots=True, eq=False, kw_only=True)
class PlayedStep:
    """One operation that returned, and the record after it. A runtime may have a class of its own."""

    record: bytes
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NO_LINES)
    """The submission's lines behind wrong parts of the state, by their names there, where a lab derives them."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What pictures show besides, where a lab derives it; nothing of it is judged."""

    def faults(self, *, refused: bool) -> tuple[Difference, ...]:  # noqa: ARG002 - the record shows everything here
        """What it did wrong that the record does not show; `refused` says whether it rightly refused to do anything."""
        return ()


@dataclass(slots=True)
class Played:
    """Everything one case reported. A runtime may have a class of its own for what else it observes."""

    case: Case
    steps: Sequence[PlayedStep] = ()
    misfit: bool = False
    """Whether the case ended because a poke does not fit the program's state."""
    bad_end: Ending | None = None
    """How it ended, where not every operation returned."""
    cpu_seconds: float = 0.0
    dropped: tuple[SourceLine, ...] = ()
    """The submission's lines that opened a file for writing, whose content was dropped."""
    failing: tuple[int, ...] = ()
    """Of a generated case: the places of its traces that, played together with others, were not what they should be."""

    @property
    def ending(self) -> Ending | None:
        """How it ended, where not every operation returned."""
        return self.bad_end

    @property
    def unexplained_end(self) -> str:
        """How it ended, where something outside the program could have caused that too; "" otherwise."""
        return ""

    @property
    def late(self) -> bool:
        """Whether it ended because a limit of time was reached."""
        return self.bad_end is not None and self.bad_end.verdict is Verdict.TIME_LIMIT_EXCEEDED

    @property
    def next_call(self) -> str:
        """The call of the operation that did not return; "" when all did."""
        operations = self.case.trace.operations
        return operations[len(self.steps)].name if len(self.steps) < len(operations) else ""

    @property
    def complete(self) -> bool:
        """Whether every operation returned."""
        return len(self.steps) == len(self.case.trace.operations)


@dataclass(frozen=True, slots=True)
class Replayed:
    """All cases, and what the program printed."""

    played: tuple[Played, ...]
    output: bytes
    cpu_seconds: float

    @property
    def unexplained_end(self) -> str:
        """The first case with an unexplained end (see `Played.unexplained_end`), and that end; "" without one."""
        return next(
            (
                f"case {played_case.case.name} {why}"
                for played_case in self.played
                if (why := played_case.unexplained_end)
            ),
            "",
        )

    @property
    def late(self) -> bool:
        """Whether a case ended because a limit of time was reached."""
        return any(played_case.late for played_case in self.played)
