"""Scores by another rubric: a record has all that they are computed from, and nothing needs to be graded again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.rubric import Rubric
from grader.core.verdict import Judged
from grader.labs import open_lab
from grader.result.assemble import rescored
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import all_graded, graded


def shifted(rubric: Rubric) -> Rubric:
    """A rubric in which every rule has the points of the next one, and another title and place."""
    points = [rule.points for rule in rubric.rules]
    rules = (
        replace(rule, points=worth, title=f"Now: {rule.title}", handout=f"{rule.handout}; Part 9")
        for rule, worth in zip(rubric.rules, [*points[1:], points[0]], strict=True)
    )
    return replace(rubric, rules=tuple(rules))


def concentrated(rubric: Rubric) -> Rubric:
    """A rubric in which one rule has nearly all points, and most others have none."""
    first = next(rule.id for rule in rubric.rules if rule.judged is Judged.CASES)
    rules = (
        replace(rule, points=80 if rule.id == first else 20 if rule.judged is Judged.BUILD else 0)
        for rule in rubric.rules
    )
    return replace(rubric, rules=tuple(rules))


@pytest.mark.timeout(1800)
def test_the_same_rubric_gives_the_same_record(samples_of: Callable[[str], list[Path]]) -> None:
    """For labelled samples, to the last field."""
    rubric = open_lab("paged_kv").rubric
    records = all_graded("paged_kv", samples_of("paged_kv"))

    assert [record.submission.name for record in records if rescored(record, rubric) != record] == []


def test_where_other_rules_lose_points_a_grading_is_needed() -> None:
    """The rule of a cause is one that lost points, and a rule without points cannot."""
    rubric = open_lab("paged_kv").rubric
    record = graded("paged_kv", SAMPLES / "wrong_answer" / "no_copy_on_write")

    assert rescored(record, shifted(rubric)) is not None
    assert rescored(record, concentrated(rubric)) is None
