"""Compare what a program reported with what the reference says, operation by operation.

Equal bytes are equal states, so a correct program costs one comparison of bytes per operation. If the bytes differ, the
model is set to the program's own state and judges the next operation from there.

`evidence` returns what shows faults of the program in one case: differences, a bad end, and what the runtime saw.
case_findings.py finds the rule that each piece of evidence breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from grader.core.judgement import Difference, Evidence, Judgement, Symptom
from grader.core.model import CannotFollow, Model, ModelFactory
from grader.core.verdict import Finding, Verdict
from grader.runtime.protocol import (
    COUNTED,
    NO_TIME,
    Comparison,
    End,
    Ending,
    Observations,
    Origin,
    Played,
    PlayedStep,
    Shown,
)
from reference.operation import Reply
from reference.oracle import CannotGoOn, CannotPoke

_TIMES_LARGER, _MORE_BYTES, _MORE_OPERATIONS = 4, 2048, 16
"""The limit of a record's size: a multiple of the reference's largest record, plus bytes for each operation."""

INVARIANT = "invariant"
"""Kind of a finding: the state breaks an invariant."""

_UNKNOWN = Origin()


def compare(played: Played, model: ModelFactory, *, late: Callable[[], bool] = lambda: False) -> Comparison:
    """Judge one case as the module describes. A wrong program raises no exception.

    `late` returns whether the time is over; then a program that differs from the reference is not judged further.
    """
    operations, steps = played.case.trace.operations, played.steps
    right = played.case.expected
    follows = equal_at_start(right.records, steps)  # nearly every operation of nearly every program
    most_bytes = _most_bytes(right.records)
    actual = list(right.replies[:follows])
    wrong = dict(_faults_alone(right.replies, steps[:follows]))
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
            wrong[number] = judgement
        pretends = judgement.expected.refused and judgement.unchanged
        if refused is None and not right.replies[number].refused and (pretends or judgement.actual.refused):
            refused = number
    end = End.UNKNOWN if unknown else End.UNREADABLE if unreadable else End.NO_TIME if unjudged else None
    return Comparison(
        case=played.case,
        played=played,
        expected=right.replies,
        actual=tuple(actual),
        wrong=wrong,
        end=end or _end(played, any_wrong=bool(wrong)),
        ended_at=len(actual),
        refused=refused,
        follows=follows,
        shown=frozenset(shown),
        unreadable=unreadable,
        unjudged=unjudged,
    )


def equal_at_start(records: Sequence[bytes], steps: Sequence[PlayedStep]) -> int:
    """Return the number of operations at the start whose records equal the reference's."""
    for number, (right, step) in enumerate(zip(records, steps, strict=False)):
        if step.record != right:
            return number
    return min(len(records), len(steps))


def _most_bytes(records: Sequence[bytes]) -> int:
    """Return the most bytes that a record may have, even if the program's structures differ from the reference's."""
    return _TIMES_LARGER * max(map(len, records), default=0) + _MORE_BYTES * (len(records) + _MORE_OPERATIONS)


def _faults_alone(replies: Sequence[Reply], steps: Sequence[PlayedStep]) -> Iterator[tuple[int, Judgement]]:
    """Yield the operations with the right reply and state and some other fault, each with its judgement."""
    for number, step in enumerate(steps):
        if faults := step.faults(refused=replies[number].refused):
            yield number, Judgement(expected=replies[number], actual=replies[number], differences=faults)


def _with_faults(judgement: Judgement, step: PlayedStep) -> Judgement:
    rightly = judgement.expected.refused and judgement.actual.text == judgement.expected.text
    faults = step.faults(refused=rightly)
    return replace(judgement, differences=(*judgement.differences, *faults)) if faults else judgement


def _end(played: Played, *, any_wrong: bool) -> End:
    if played.complete:  # a bad end after the last call belongs to no operation
        return End.REACHED
    if played.misfit and any_wrong:  # a poke fits the right state, so a misfit without a fault is a false report
        return End.MISFIT
    ending = played.ending
    return End.NO_TIME if ending is not None and ending.kind == NO_TIME else End.ENDED


def evidence(observed: Observations, number: int) -> tuple[Evidence, ...]:
    """Return all evidence of the case with this number: each difference and symptom, with its operation."""
    comparison = observed.comparisons[number]
    symptoms = (*_invariants(comparison), *_endings(comparison), *observed.symptoms.get(number, ()))
    return (*_differences(observed, number), *symptoms)


def finding_of(symptom: Symptom, comparison: Comparison, rule: str) -> Finding:
    """Return the finding that reports a symptom of a case."""
    return Finding(
        rule=rule,
        verdict=symptom.verdict,
        tool=symptom.tool,
        kind=symptom.kind,
        case=comparison.case.name,
        operation=symptom.operation + 1,
        message=symptom.seen,
        source=symptom.lines,
    )


def _differences(observed: Observations, number: int) -> Iterator[Difference]:
    for operation, judgement in observed.comparisons[number].wrong.items():
        by_tag = observed.origins.get((number, operation), {})
        for difference in judgement.differences:
            if COUNTED not in difference.tags:
                origin = next((origin for tag, origin in by_tag.items() if tag in difference.tags), _UNKNOWN)
                yield replace(difference, operation=operation, lines=origin.lines, tool=origin.tool)


def _invariants(comparison: Comparison) -> Iterator[Symptom]:
    """Yield a symptom for each broken invariant, at the operation that broke it."""
    for operation, judgement in comparison.wrong.items():
        for sentence in judgement.broken:
            yield Symptom(operation=operation, verdict=Verdict.WRONG_ANSWER, kind=INVARIANT, message=sentence)


def _endings(comparison: Comparison) -> Iterator[Symptom]:
    """Yield a symptom if the case did not reach its end, or its state could no longer be judged."""
    at, operations = comparison.ended_at, comparison.case.trace.operations
    if comparison.end in (End.REACHED, End.MISFIT, End.UNKNOWN) or at >= len(operations):
        return
    call, later = operations[at].name, comparison.played.ending
    if comparison.end is End.UNREADABLE:
        sentence = (
            f"what the calls before this {call} left cannot be followed, so the rest of the case cannot be judged"
        )
        ending = _by_the_judge(comparison.end, Verdict.WRONG_ANSWER, f"{sentence}: {comparison.unreadable}")
    elif comparison.unjudged:
        sentence = "not compared: what the calls before it did and left used up the time for all cases"
        ending = _by_the_judge(comparison.end, Verdict.TIME_LIMIT_EXCEEDED, sentence)
    else:
        sentence = f"the program ended inside {call} without reporting why"
        ending = later or _by_the_judge(comparison.end, Verdict.RUN_TIME_ERROR, sentence)
    yield Symptom(
        operation=at,
        verdict=ending.verdict,
        kind=ending.kind,
        message=ending.sentence,
        lines=ending.lines or (later.lines if later is not None else ()),
        detail=ending.detail,
    )


def _by_the_judge(end: End, verdict: Verdict, sentence: str) -> Ending:
    return Ending(kind=end.value, verdict=verdict, sentence=sentence)
