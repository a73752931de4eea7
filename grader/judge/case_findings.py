"""The result of diagnosing one case: its symptoms, the findings to report, and its cause once it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grader.assignment.lab import Clue
from grader.core.verdict import Finding
from grader.judge.symptom import Symptom
from grader.runtime.comparison import Comparison
from grader.runtime.suspicion import Suspicion

__all__ = ["CaseFindings", "suspicions"]


@dataclass(slots=True)
class CaseFindings:
    """The symptoms of one case at all operations, the findings to report, and its cause once it is known."""

    comparison: Comparison
    symptoms: list[Symptom] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    leaks: bool = False
    memory_errors: bool = False
    clue: Clue | None = None
    cause: Symptom | None = None
    group: str = ""
    """Cases of one group have one cause: the same faulting line, or the same rule and hint."""
    hint: str = ""
    said: str = ""
    """The part of the hint that comes from instruments."""
    broken: str = ""
    """The sentence of the handout that was broken."""
    not_yet: bool = False
    """Whether it goes wrong in a call that has not done its work in any case."""
    plain: bool = True
    """Whether it only calls what is to be written, on one target, without pokes and without an odd set-up."""

    first_wrong: int = field(init=False)
    """The first bad operation, -1 where all are right."""

    def __post_init__(self) -> None:
        """Find the first bad operation once, because there may be many symptoms."""
        self.first_wrong = min((symptom.operation for symptom in self.symptoms), default=-1)

    def first(self) -> list[Symptom]:
        """The symptoms of the first bad operation."""
        return [symptom for symptom in self.symptoms if symptom.operation == self.first_wrong]


def suspicions(found: Sequence[CaseFindings]) -> list[Suspicion]:
    """The operations in which cases first went wrong and whose lines are still unknown."""
    return [
        Suspicion(
            case=number,
            operation=one.cause.operation,
            comparison=one.comparison,
            kind=one.cause.kind,
            difference=one.cause.difference,
            judgement=one.cause.judgement,
            group=one.group,
            plain=one.plain,
        )
        for number, one in enumerate(found)
        if one.cause is not None and not one.cause.culprits
    ]
