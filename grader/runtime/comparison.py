"""What differed in a case that was played: the record of a comparison (grader.judge.compare makes it)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from grader.assignment.rubric import Rule
from grader.core.case import Case
from grader.runtime.heap_events import Event
from grader.runtime.observation import Played
from reference.model import Judgement, Span
from reference.operation import Reply

__all__ = ["ALLOCATED", "LOST", "REFUSALS", "Comparison", "Deviation", "End"]

REFUSALS = ("NULL", "-1")
"""What a call returns that does not do its work."""

ALLOCATED = "allocated"
"""Tag of a difference: a call that must fail allocated memory."""

LOST = "lost"
"""Tag of a difference: memory that nobody freed."""


class End(StrEnum):
    """How a case came to its end."""

    REACHED = "reached"  # every operation came back
    CRASH = "crash"
    HANG = "hang"
    NO_TIME = "no-time"  # the time for the whole submission was used up before or in it
    LEFT = "left"  # the program called exit or abort
    STOPPED = "stopped"  # the reports stop without a reason that we saw
    UNREADABLE = "unreadable"  # its structures are so broken that the handout no longer says what comes next
    MISFIT = "misfit"  # a poke does not fit its state


@dataclass(frozen=True, slots=True)
class Deviation:
    """One operation (counted from 0) that did not do what it should have done from where the program was."""

    operation: int
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Comparison:
    """One case, compared."""

    case: Case
    played: Played
    expected: tuple[Reply, ...]
    """The reference run's reply to every operation."""
    actual: tuple[str, ...]
    """The program's reply to every operation that came back."""
    deviations: tuple[Deviation, ...]
    end: End
    ended_at: int
    """The operation that did not come back, or the number of operations."""
    refused: int | None
    """The first operation that the reference accepts and the program refused, or only said that it did not."""
    lost: int
    """Allocations that nobody freed, when the case reached its end."""
    allowed: tuple[tuple[Span, ...], ...] = ()
    """What each operation may touch (see `Model.allowed`), up to the first one that went wrong physically."""
    unreadable: str = ""
    """Why nothing follows from the state in which the case ended; empty where it ended otherwise."""
    unjudged: bool = False
    """Did it end because we had no time left to compare it?"""

    def is_cleanup(self, number: int) -> bool:
        """Is it an operation that the grader added to clean up behind the case?"""
        operations = self.case.trace.operations
        return 0 < number < len(operations) and operations[number].implicit

    def facets(self, rule: Rule) -> frozenset[str]:
        """Everything that differed and is this rule's business.

        In the clean-up only what was lost counts for every rule: it may have been lost long before.
        """
        operations = self.case.trace.operations
        return frozenset(
            difference.facet
            for deviation in self.deviations
            for difference in deviation.judgement.differences
            if (not rule.calls or operations[deviation.operation].name in rule.calls)
            and (
                self._may_lose(rule)
                if LOST in difference.tags
                else rule.covers_cleanup or not self.is_cleanup(deviation.operation)
            )
        )

    def _may_lose(self, rule: Rule) -> bool:
        """Is what was lost this rule's business, by the calls that allocated it?"""
        operations = self.case.trace.operations
        makers = {event.allocated_by for event in self.played.events if event.event is Event.LIVE}
        names = {operations[maker].name for maker in makers if 0 <= maker < len(operations)}
        return not (rule.allocated_by and names) or bool(rule.allocated_by & names)
