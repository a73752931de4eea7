"""What people decided after the grading: shown by every format, and counted in every number before it gets here."""

from __future__ import annotations

from grader.core.record import Override, Record
from grader.report.words import counted

__all__ = ["decision_of", "decisions_of", "said_of"]


def decisions_of(record: Record) -> list[str]:
    """One sentence for each of them; all points are those after it."""
    return [said_of(one) for one in record.overrides]


def said_of(override: Override) -> str:
    """Points, who gave them, and why."""
    points = f"{counted(override.points, 'point')} instead of {override.was}"
    return f"{override.rule}: {points}, decided by {override.by}: {override.reason}"


def decision_of(record: Record, rule: str) -> str:
    """What was decided about one rule; "" when nothing was."""
    return next((said_of(one) for one in record.overrides if one.rule == rule), "")
