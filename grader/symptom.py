"""One thing that was wrong at one operation of a case, and the finding that tells of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grader.compare import Comparison
from grader.verdict import Finding, SourceLine, Verdict
from reference.model import Difference, Judgement

__all__ = ["Lines", "Named", "Symptom", "finding_of", "stack_of"]

Lines = Mapping[tuple[int, ...], tuple[SourceLine, ...]]
"""The student's lines on each stack of addresses (see grader.symbols)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What is known of the line where a wrong reply or value comes from (see grader.lines)."""

    lines: tuple[SourceLine, ...] = ()
    said: str = ""
    """A sentence more on it."""
    stored: bool = False
    """Is the wrong value stored there, and not what stood there before left?"""
    freed: bool = False
    """Is it a use of memory that was freed? Then whatever else is wrong comes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that was wrong at one operation (counted from 0)."""

    operation: int
    verdict: Verdict
    kind: str = ""
    difference: Difference | None = None
    judgement: Judgement | None = None
    finding: Finding | None = None
    culprits: tuple[SourceLine, ...] = ()
    """The student's lines behind a difference, where they are known."""

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
    """A finding at that operation (counted from 0); which rule it breaks is said later, in diagnose.py."""
    return Finding(
        rule="",
        verdict=verdict,
        kind=kind,
        case=comparison.case.name,
        operation=operation + 1,
        message=message,
        source=source,
    )


def stack_of(address: int) -> tuple[int, ...]:
    """A return address as a stack of its own: its call is the instruction before."""
    return (0, address) if address else ()
