"""The evidence against a program, by case and operation: differences, bad ends, and other symptoms of a runtime.

case_findings.py finds the rule that each piece of evidence breaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from grader.core.judgement import Difference, Judgement, Symptom
from grader.core.verdict import Finding, SourceLine, Verdict
from grader.runtime.comparison import COUNTED, Comparison, End
from grader.runtime.observation import Ending
from grader.runtime.protocol import Culprit, Observations

INVARIANT = "invariant"
"""Kind of a finding: the state breaks an invariant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One difference or symptom at one operation (counted from 0)."""

    operation: int
    verdict: Verdict
    kind: str = ""
    """The word by which known mistakes recognise a symptom; "" for a difference."""
    difference: Difference | None = None
    judgement: Judgement | None = None
    symptom: Symptom | None = None
    culprit: Culprit | None = None
    """The source lines that caused a difference, if an instrument found them."""
    searched: tuple[SourceLine, ...] = ()
    """The source lines that were found later: from other evidence of the same operation, or by a search."""

    @property
    def culprits(self) -> tuple[SourceLine, ...]:
        """The student's lines that caused a difference, if they are known."""
        return self.searched or (self.culprit.lines if self.culprit is not None else ())

    @property
    def source(self) -> tuple[SourceLine, ...]:
        """The student's lines, innermost first."""
        return self.symptom.lines if self.symptom is not None else self.culprits

    @property
    def explains_state(self) -> bool:
        """Whether it probably caused a wrong state after the same call."""
        return self.symptom is not None and self.symptom.explains_state

    @property
    def at_origin(self) -> bool:
        """Whether its lines are where the misused memory was obtained, not where it was misused."""
        return self.symptom is not None and self.symptom.at_origin

    @property
    def sentence(self) -> str:
        """What was observed, with the instrument that reported it; "" without a difference and a symptom."""
        if self.symptom is not None:
            return self.symptom.sentence
        return self.difference.seen if self.difference is not None else ""


def evidence(observed: Observations, number: int) -> list[Evidence]:
    """Return all evidence of the case with this number."""
    comparison = observed.comparisons[number]
    symptoms = [*_invariants(comparison), *_endings(comparison), *observed.symptoms.get(number, ())]
    return [*_differences(observed, number), *(_of_symptom(symptom) for symptom in symptoms)]


def _of_symptom(symptom: Symptom) -> Evidence:
    return Evidence(
        operation=symptom.operation,
        verdict=symptom.verdict,
        kind=symptom.detail or symptom.kind,
        symptom=symptom,
    )


def finding_of(symptom: Symptom, comparison: Comparison, rule: str) -> Finding:
    """Return the finding that reports a symptom of a case."""
    return Finding(
        rule=rule,
        verdict=symptom.verdict,
        tool=symptom.tool,
        kind=symptom.kind,
        case=comparison.case.name,
        operation=symptom.operation + 1,
        message=symptom.sentence,
        source=symptom.lines,
    )


def _differences(observed: Observations, number: int) -> Iterator[Evidence]:
    for deviation in observed.comparisons[number].deviations:
        culprits = observed.culprits.get((number, deviation.operation), {})
        for difference in deviation.judgement.differences:
            if COUNTED in difference.tags:
                continue
            yield Evidence(
                operation=deviation.operation,
                verdict=Verdict.WRONG_ANSWER,
                difference=difference,
                judgement=deviation.judgement,
                culprit=next((culprit for tag, culprit in culprits.items() if tag in difference.tags), None),
            )


def _invariants(comparison: Comparison) -> Iterator[Symptom]:
    """Yield a symptom for each broken invariant, at the operation that broke it."""
    for deviation in comparison.deviations:
        for sentence in deviation.judgement.broken:
            yield Symptom(operation=deviation.operation, verdict=Verdict.WRONG_ANSWER, kind=INVARIANT, message=sentence)


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
        sentence = "not compared: what the calls before it did and left behind used up the time for all cases"
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
