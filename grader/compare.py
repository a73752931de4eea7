"""Compare what a program reported with what the reference says, operation by operation.

Equal bytes are equal states, so a correct program costs one comparison of bytes an operation. Only where they
differ does the model take over the program's own state and judge the next operation from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from grader.grammar import Case
from grader.replay import Event, Played, PlayedStep
from grader.rubric import Rule
from grader.same import Same
from reference.model import CannotGoOn, CannotPoke, Difference, Judgement, ModelFactory, Span, Step, play
from reference.operation import Reply, Trace

__all__ = ["ALLOCATED", "REFUSALS", "Comparison", "Deviation", "End", "compare"]

REFUSALS = ("NULL", "-1")
"""What a call returns that does not do its work."""

ALLOCATED = "allocated"
"""Tag of a difference: a call that must fail allocated memory."""

_MOST_KEPT = 1024


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
    """The first operation that the reference accepts and the program refused."""
    lost: int
    """Allocations that nobody freed, when the case reached its end."""
    allowed: tuple[tuple[Span, ...], ...] = ()
    """What each operation may touch (see `Model.allowed`), up to the first one that went wrong physically."""

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
            and (rule.covers_cleanup or "lost" in difference.tags or not self.is_cleanup(deviation.operation))
        )


def compare(played: Played, model: ModelFactory) -> Comparison:
    """Judge one case; see the module. Raises nothing for a wrong program."""
    trace = played.case.trace
    right = _right_steps(Same(trace), model)
    own = model(trace)
    actual: list[str] = []
    deviations: list[Deviation] = []
    before: bytes | None = None
    unreadable = False
    refused: int | None = None
    allowed: list[tuple[Span, ...]] = []
    follows = True  # the program's state is the reference's, byte by byte
    for number, (wanted, step) in enumerate(zip(right, played.steps, strict=False)):
        reply = wanted.reply
        followed, follows = follows, follows and step.record == wanted.record
        if follows:
            allowed.append(wanted.allowed)
            before = step.record
            if not (step.bad_frees or step.broken or (reply.refused and step.allocations)):
                actual.append(reply.text)  # nearly every operation of nearly every program
                continue
            judgement = Judgement(expected=reply, actual=reply, differences=())
        else:
            try:
                judgement = own.judge(before, wanted.operation, step.record)
            except (CannotGoOn, CannotPoke):
                unreadable = True
                break
            if followed:
                allowed.append(own.allowed())  # after the program's own choice of blocks
        heap = tuple(_heap(judgement, step))
        if heap:
            judgement = replace(judgement, differences=(*judgement.differences, *heap))
        actual.append(judgement.actual.text)
        if judgement.differences:
            deviations.append(Deviation(number, judgement))
        if refused is None and not reply.refused and judgement.actual.text in REFUSALS:
            refused = number
        before = step.record
    end = End.UNREADABLE if unreadable else _end(played)
    lost = _lost(played) if played.complete else 0
    if lost:
        _add_lost(deviations, len(trace.operations) - 1, lost, right[-1].reply)
    return Comparison(
        case=played.case,
        played=played,
        expected=tuple(wanted.reply for wanted in right),
        actual=tuple(actual),
        deviations=tuple(deviations),
        end=end,
        ended_at=len(actual),
        refused=refused,
        lost=lost,
        allowed=tuple(allowed),
    )


@lru_cache(maxsize=_MOST_KEPT)
def _right_steps(trace: Same[Trace], model: ModelFactory) -> tuple[Step, ...]:
    """What the reference makes of a trace: the same for every submission of a class."""
    return tuple(play(model(trace.value), trace.value))


def _heap(judgement: Judgement, step: PlayedStep) -> Iterator[Difference]:
    """What one call did with memory. How much a successful call allocates is the program's own business."""
    refuses = judgement.expected.refused and judgement.actual.text == judgement.expected.text
    if refuses and step.allocations:
        yield Difference(
            facet="failing",
            field="allocations in the refused call",
            expected="0",
            actual=str(step.allocations),
            tags=frozenset({ALLOCATED, "kept" if step.frees < step.allocations else "freed-again"}),
        )
    if step.bad_frees:
        yield Difference(
            facet="heap",
            field="bad calls of free",
            expected="0",
            actual=str(step.bad_frees),
            tags=frozenset({"bad-free"}),
        )
    if step.broken:
        yield Difference(
            facet="heap",
            field="allocations written outside their bounds",
            expected="0",
            actual=str(step.broken),
            tags=frozenset({"broken"}),
        )


def _lost(played: Played) -> int:
    """Of very many the harness tells the number, but not each."""
    told = sum(event.event is Event.LIVE for event in played.events)
    return max(told, played.steps[-1].live) if played.steps else told


def _add_lost(deviations: list[Deviation], last: int, lost: int, reply: Reply) -> None:
    difference = Difference(
        facet="heap",
        field="allocations never freed",
        expected="0",
        actual=str(lost),
        tags=frozenset({"lost"}),
    )
    if deviations and deviations[-1].operation == last:
        judgement = deviations.pop().judgement
    else:
        judgement = Judgement(expected=reply, actual=reply, differences=())
    deviations.append(Deviation(last, replace(judgement, differences=(*judgement.differences, difference))))


def _end(played: Played) -> End:
    if played.misfit:
        return End.MISFIT
    if played.hung:
        return End.HANG
    if played.no_time:
        return End.NO_TIME
    if played.left is not None:
        return End.LEFT
    if played.fault is not None and not played.complete:
        return End.CRASH
    if not played.complete:
        return End.CRASH if played.status & 0x7F else End.STOPPED
    return End.REACHED
