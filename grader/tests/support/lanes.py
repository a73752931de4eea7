"""The dearer ways to grade, which must give the same records.

Programs can be linked as the handout's own commands do it, and natively each case can have a process from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from grader.assignment.lab import Settings
from grader.classroom.fingerprint import grading_plan
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.pipeline import grade
from grader.runtime.native import runtime
from grader.runtime.native.replay import replay
from grader.runtime.protocol import GradingOptions

_LAB = "paged_kv"
_OF_CHANCE = ("causes", "findings")
"""Fields with the line at which a loop was when its time was used up: it differs from grading to grading."""


def with_every_case_alone(path: Path) -> Record:
    """Return the record of one submission of which no two cases share a process natively, without its costs."""
    plan = grading_plan(Settings(lab=_LAB))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "replay", lambda *given, **options: replay(*given, **{**options, "together": False}))
        return replace(grade(path, plan.lab, plan.cases), cpu_seconds={})


def in_both_lanes(path: Path) -> tuple[Record, Record]:
    """Return the records of one submission, the fast lane's first, without their costs."""
    plan = grading_plan(Settings(lab=_LAB))
    fast, stock = (
        replace(grade(path, plan.lab, plan.cases, GradingOptions(stock=stock)), cpu_seconds={})
        for stock in (False, True)
    )
    assert stock.environment.lane == "stock"
    return fast, replace(stock, environment=fast.environment)


def differing(fast: Record, other: Record) -> Iterator[str]:
    """Yield the fields in which two records differ, each with what differs first."""
    hangs = fast.verdict is other.verdict is Verdict.TIME_LIMIT_EXCEEDED
    for field in fields(Record):
        if hangs and field.name in _OF_CHANCE:
            continue
        value, its = getattr(fast, field.name), getattr(other, field.name)
        if value != its:
            pairs = zip(value, its, strict=False) if isinstance(value, tuple) else [(value, its)]
            first = next(((mine, theirs) for mine, theirs in pairs if mine != theirs), None)
            yield f"{field.name}: {first or (len(value), len(its))}"[:600]
