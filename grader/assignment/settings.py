"""How submissions are graded. Every value here changes records."""

from __future__ import annotations

from dataclasses import dataclass

from grader.runtime.protocol import GradingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(GradingOptions):
    """How a class is graded: the assignment, its cases, and the options of each grading."""

    lab: str
    case: str = "*"
    public_only: bool = False
    """Whether hidden cases are left out; always true where a file replaces them (grader.assignment.case_selection)."""
