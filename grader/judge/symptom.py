"""One fault at one operation of a case, and the finding that reports it."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.difference import Difference, Judgement
from grader.core.verdict import Finding, SourceLine, Tool, Verdict
from grader.runtime.comparison import Comparison

__all__ = ["Symptom", "finding_of", "without_tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One fault at one operation (counted from 0)."""

    operation: int
    verdict: Verdict
    kind: str = ""
    difference: Difference | None = None
    judgement: Judgement | None = None
    finding: Finding | None = None
    culprits: tuple[SourceLine, ...] = ()
    """The student's lines behind a difference, where they are known."""
    explains_state: bool = False
    """Whether it is a misuse of memory that probably caused a wrong state of the same call."""
    at_allocation: bool = False
    """Whether its line is the one that made the allocation, not the one that misused it."""

    @property
    def source(self) -> tuple[SourceLine, ...]:
        """The student's lines, innermost first."""
        return self.finding.source if self.finding is not None else self.culprits


def finding_of(
    comparison: Comparison,
    operation: int,
    *,
    verdict: Verdict,
    kind: str,
    message: str,
    source: tuple[SourceLine, ...],
) -> Finding:
    """Return a finding at that operation (counted from 0); case_causes.py sets its rule later."""
    return Finding(
        rule="",
        verdict=verdict,
        kind=kind,
        case=comparison.case.name,
        operation=operation + 1,
        message=message,
        source=source,
    )


def without_tool(finding: Finding) -> str:
    """What a finding says, without the name of the memory checker before it."""
    _, _, said = finding.message.partition(": ")
    return said if said and finding.tool is Tool.MEMORY_CHECKER else finding.message
