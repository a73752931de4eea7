"""The result of diagnosing one case: its evidence, the findings to report, and its cause once it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from grader.assignment.lab import Clue
from grader.core.rubric import Rule
from grader.core.verdict import Finding
from grader.judge.evidence import Evidence
from grader.runtime.comparison import Comparison
from grader.runtime.protocol import Unplaced

__all__ = ["CaseFindings", "unplaced"]


@dataclass(slots=True)
class CaseFindings:
    """The evidence of one case at all operations, the findings to report, and its cause once it is known."""

    comparison: Comparison
    evidence: list[Evidence] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    leaks: bool = False
    memory_errors: bool = False
    clue: Clue | None = None
    cause: Evidence | None = None
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
        """Find the first bad operation once, because there may be much evidence."""
        self.first_wrong = min((one.operation for one in self.evidence), default=-1)

    def first(self) -> list[Evidence]:
        """The evidence at the first bad operation."""
        return [one for one in self.evidence if one.operation == self.first_wrong]

    def facets(self, rule: Rule) -> frozenset[str]:
        """Return the facets of all that counts for this rule.

        In the clean-up only what earlier calls may have caused counts for every rule.
        """
        last = self.comparison.case.trace.operations[-1].name
        return self.comparison.facets(rule).union(
            one.symptom.facet
            for one in self.evidence
            if one.symptom is not None
            and one.symptom.facet
            and rule.counts(one.symptom.facet, last)
            and rule.counts_made_by(one.symptom.made_by)
        )


def unplaced(found: Sequence[CaseFindings]) -> list[Unplaced]:
    """Return the operations in which cases first went wrong and whose lines are still unknown."""
    return [
        Unplaced(
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
