"""Compare what a program reported with what the reference says, operation by operation.

Equal bytes are equal states, so a correct program costs one comparison of bytes per operation. If the bytes differ, the
model is set to the program's own state and judges the next operation from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from grader.core.judgement import Judgement
from grader.core.model import CannotFollow, Model, ModelFactory
from grader.runtime.comparison import Comparison, Deviation, End, Shown
from grader.runtime.observation import NO_TIME, Played, PlayedStep
from reference.operation import Reply
from reference.oracle import CannotGoOn, CannotPoke

_TIMES_LARGER, _MORE_BYTES, _MORE_OPERATIONS = 4, 2048, 16
"""The limit of a record's size: a multiple of the reference's largest record, plus bytes for each operation."""


def compare(played: Played, model: ModelFactory, *, late: Callable[[], bool] = lambda: False) -> Comparison:
    """Judge one case as the module describes. A wrong program raises no exception.

    `late` returns whether no time is left to judge a program that differs from the reference.
    """
    operations, steps = played.case.trace.operations, played.steps
    right = played.case.expected
    follows = _followed_by(right.records, steps)  # nearly every operation of nearly every program
    most_bytes = _most_bytes(right.records)
    actual = list(right.replies[:follows])
    deviations = list(_faults_alone(right.replies, steps[:follows]))
    own: Model | None = None
    unreadable = ""
    unjudged = unknown = False
    refused: int | None = None
    shown: set[Shown] = set()
    for number in range(follows, min(len(steps), len(operations))):
        unjudged = late()
        if unjudged:
            break
        if len(steps[number].record) > most_bytes:
            unreadable = f"what it left takes {len(steps[number].record)} bytes to tell, and more than {most_bytes}"
            unreadable += " are never needed"
            break
        own = own or model(played.case.trace)
        before = steps[number - 1].record if number else None
        try:
            judgement = own.judge(before, operations[number], steps[number].record)
        except CannotFollow:
            unknown = True
            break
        except (CannotGoOn, CannotPoke) as error:
            unreadable = str(error)
            break
        judgement = _with_faults(judgement, steps[number])
        actual.append(judgement.actual)
        if judgement.worked:
            shown.update((operations[number].name, facet) for facet in judgement.due)
        if judgement.differences:
            deviations.append(Deviation(number, judgement))
        pretends = judgement.expected.refused and judgement.unchanged
        if refused is None and not right.replies[number].refused and (pretends or judgement.actual.refused):
            refused = number
    end = End.UNKNOWN if unknown else End.UNREADABLE if unreadable else End.NO_TIME if unjudged else None
    return Comparison(
        case=played.case,
        played=played,
        expected=right.replies,
        actual=tuple(actual),
        deviations=tuple(deviations),
        end=end or _end(played, deviations),
        ended_at=len(actual),
        refused=refused,
        follows=follows,
        shown=frozenset(shown),
        unreadable=unreadable,
        unjudged=unjudged,
    )


def _followed_by(records: Sequence[bytes], steps: Sequence[PlayedStep]) -> int:
    """Return the number of operations at the start whose records equal the reference's."""
    for number, (right, step) in enumerate(zip(records, steps, strict=False)):
        if step.record != right:
            return number
    return min(len(records), len(steps))


def _most_bytes(records: Sequence[bytes]) -> int:
    """Return the most bytes that a record may have, even if the program's structures differ from the reference's."""
    return _TIMES_LARGER * max(map(len, records), default=0) + _MORE_BYTES * (len(records) + _MORE_OPERATIONS)


def _faults_alone(replies: Sequence[Reply], steps: Sequence[PlayedStep]) -> Iterator[Deviation]:
    """Yield deviations for operations that left the right state but did something else wrong."""
    for number, step in enumerate(steps):
        if faults := step.faults(refused=replies[number].refused):
            yield Deviation(number, Judgement(expected=replies[number], actual=replies[number], differences=faults))


def _with_faults(judgement: Judgement, step: PlayedStep) -> Judgement:
    rightly = judgement.expected.refused and judgement.actual.text == judgement.expected.text
    faults = step.faults(refused=rightly)
    return replace(judgement, differences=(*judgement.differences, *faults)) if faults else judgement


def _end(played: Played, deviations: Sequence[Deviation]) -> End:
    if played.complete:  # what happens after the last call is no operation
        return End.REACHED
    if played.misfit and deviations:  # a poke fits a right state; without a deviation, the report of a misfit is false
        return End.MISFIT
    ending = played.ending
    return End.NO_TIME if ending is not None and ending.kind == NO_TIME else End.ENDED
