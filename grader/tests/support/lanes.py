"""Both lanes: programs linked as it costs least, and as the handout's own commands do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from grader.assignment.lab import Settings
from grader.classroom.workers import grading_plan
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.pipeline import grade
from grader.runtime.protocol import GradingOptions

_LAB = "paged_kv"
_OF_CHANCE = ("causes", "findings")
"""Fields with the line at which a loop was when its time was used up: it differs from grading to grading."""


def in_both_lanes(path: Path) -> tuple[Record, Record]:
    """Return the records of one submission, the fast lane's first, without their costs."""
    plan = grading_plan(Settings(lab=_LAB))
    fast, stock = (
        replace(grade(path, plan.lab, plan.cases, GradingOptions(stock=stock)), cpu_seconds={})
        for stock in (False, True)
    )
    assert stock.environment.lane == "stock"
    return fast, replace(stock, environment=fast.environment)


def differing(fast: Record, stock: Record) -> Iterator[str]:
    """Yield the fields in which two records differ, each with what differs first."""
    hangs = fast.verdict is stock.verdict is Verdict.TIME_LIMIT_EXCEEDED
    for field in fields(Record):
        if hangs and field.name in _OF_CHANCE:
            continue
        value, other = getattr(fast, field.name), getattr(stock, field.name)
        if value != other:
            pairs = zip(value, other, strict=False) if isinstance(value, tuple) else [(value, other)]
            first = next(((mine, theirs) for mine, theirs in pairs if mine != theirs), None)
            yield f"{field.name}: {first or (len(value), len(other))}"[:600]
