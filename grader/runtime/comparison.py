"""The result of comparing a case that was played with the reference (grader.judge.compare makes it)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from grader.core.case import Case
from grader.core.judgement import Judgement
from grader.core.rubric import Rule
from grader.runtime.observation import Played
from reference.operation import Reply

COUNTED = "counted"
"""Tag of a difference that a runtime only counted: a symptom of its own says what happened."""


Shown = tuple[str, str]
"""A call, and a facet in which it had something to do when it did something."""


class End(StrEnum):
    """How a case ended."""

    REACHED = "reached"  # every operation returned
    ENDED = "ended"  # an operation did not return; `Played.ending` says how
    NO_TIME = "no-time"  # the time for the whole submission was used up before the case or in it
    UNKNOWN = "unknown"  # it went another way than what was recorded of the reference, which is not here itself
    UNREADABLE = "unreadable"  # its structures are so broken that the handout no longer says what comes next
    MISFIT = "misfit"  # a poke does not fit the program's state


@dataclass(frozen=True, slots=True)
class Deviation:
    """One operation (counted from 0) that did not do what it should have done from the program's own state."""

    operation: int
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one case."""

    case: Case
    played: Played
    expected: tuple[Reply, ...]
    """The reference run's reply to every operation."""
    actual: tuple[Reply, ...]
    """The program's reply to every operation that returned."""
    deviations: tuple[Deviation, ...]
    end: End
    ended_at: int
    """The operation that did not return, or the number of operations."""
    refused: int | None
    """The first operation that the reference accepts and the program refused, or left undone but reported as done."""
    follows: int
    """The number of operations, from the first on, that left the reference's state, byte by byte."""
    shown: frozenset[Shown] = frozenset()
    """What the operations after these showed (grader.judge.work)."""
    unreadable: str = ""
    """Why nothing follows from the state in which the case ended; empty for any other end."""
    unjudged: bool = False
    """Whether the comparison ended because no time was left for it."""

    @property
    def ending_kind(self) -> str:
        """How the case ended, in one word: what the runtime says of an operation that did not return."""
        ending = self.played.ending if self.end is End.ENDED else None
        return ending.kind if ending is not None else self.end.value

    def is_cleanup(self, number: int) -> bool:
        """Whether the grader added this operation to clean up after the case."""
        operations = self.case.trace.operations
        return 0 < number < len(operations) and operations[number].implicit

    def facets(self, rule: Rule) -> frozenset[str]:
        """Return the facets of all differences that count for this rule."""
        operations = self.case.trace.operations
        return frozenset(
            difference.facet
            for deviation in self.deviations
            for difference in deviation.judgement.differences
            if rule.counts(difference.facet, operations[deviation.operation].name)
            and (rule.covers_cleanup or not self.is_cleanup(deviation.operation))
        )
