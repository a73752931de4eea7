"""Decisions that people made after the grading. Every format shows them; the record's numbers already include them."""

from __future__ import annotations

from grader.core.record import Override, Record
from grader.report.words import counted


def decisions_of(record: Record) -> list[str]:
    """Return one sentence for each decision; all points are those after it."""
    return [said_of(override) for override in record.overrides]


def said_of(override: Override) -> str:
    """Return a sentence with the points, who gave them, and why."""
    points = f"{counted(override.points, 'point')} instead of {override.was}"
    return f"{override.rule}: {points}, decided by {override.by}: {override.reason}"


def decision_of(record: Record, rule: str) -> str:
    """Return the decision about one rule; "" when there is none."""
    return next((said_of(override) for override in record.overrides if override.rule == rule), "")
