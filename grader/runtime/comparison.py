"""The result of comparing a case that was played with the reference (grader.judge.compare makes it)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from grader.core.case import Case
from grader.core.difference import Difference, Judgement
from grader.core.model import Span
from grader.core.rubric import Rule
from grader.runtime.heap_events import Event
from grader.runtime.observation import Played
from reference.operation import Reply

__all__ = ["ALLOCATED", "DAMAGED", "LOST", "RELEASED_WRONGLY", "Comparison", "Deviation", "End"]

ALLOCATED = "allocated"
"""Tag of a difference: a call that must fail allocated memory."""

RELEASED_WRONGLY = "released-wrongly"
"""Tag of a difference: memory was released that may not be."""

DAMAGED = "damaged"
"""Tag of a difference: something was written outside of allocations."""

LOST = "lost"
"""Tag of a difference: memory that was never freed."""


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
    lost: int
    """The number of allocations that were never freed, when the case reached its end."""
    allowed: tuple[tuple[Span, ...], ...] = ()
    """What each operation may touch (see `Model.allowed`), up to and including the first with a wrong record."""
    unreadable: str = ""
    """Why nothing follows from the state in which the case ended; empty for any other end."""
    unjudged: bool = False
    """Whether the comparison ended because no time was left for it."""
    lost_from: frozenset[str] = frozenset()
    """Calls whose allocations a memory checker saw lost, in addition to those of `played.events`."""

    @property
    def ending_kind(self) -> str:
        """How the case ended, in one word: what the runtime says of an operation that did not return."""
        ending = self.played.ending if self.end is End.ENDED else None
        return ending.kind if ending is not None else self.end.value

    def with_lost(self, count: int, actual: str) -> Comparison:
        """Return the same comparison of a case that ended and lost `count` allocations; `actual` says so in words."""
        last = len(self.case.trace.operations) - 1
        difference = Difference(
            facet="heap", field="allocations never freed", expected="0", actual=actual, tags=frozenset({LOST})
        )
        others = [one for one in self.deviations if one.operation != last]
        judgement = next(
            (one.judgement for one in self.deviations if one.operation == last),
            Judgement(expected=self.expected[last], actual=self.expected[last], differences=()),
        )
        judgement = replace(judgement, differences=(*judgement.differences, difference))
        return replace(self, lost=count, deviations=(*others, Deviation(last, judgement)))

    def is_cleanup(self, number: int) -> bool:
        """Whether the grader added this operation to clean up after the case."""
        operations = self.case.trace.operations
        return 0 < number < len(operations) and operations[number].implicit

    def facets(self, rule: Rule) -> frozenset[str]:
        """Return the facets of all differences that count for this rule.

        In the clean-up only lost memory counts for every rule: it may have been lost long before.
        """
        operations = self.case.trace.operations
        return frozenset(
            difference.facet
            for deviation in self.deviations
            for difference in deviation.judgement.differences
            if rule.counts(difference.facet, operations[deviation.operation].name)
            and (
                self._may_lose(rule)
                if LOST in difference.tags
                else rule.covers_cleanup or not self.is_cleanup(deviation.operation)
            )
        )

    def _may_lose(self, rule: Rule) -> bool:
        """Whether lost memory counts for this rule, by the calls that allocated it."""
        operations = self.case.trace.operations
        makers = {event.allocated_by for event in self.played.events if event.event is Event.LIVE}
        names = {operations[maker].name for maker in makers if 0 <= maker < len(operations)} | self.lost_from
        return not (rule.allocated_by and names) or bool(rule.allocated_by & names)
