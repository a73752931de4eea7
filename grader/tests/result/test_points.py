"""Scores by another rubric: a record has all that they are computed from, and nothing needs to be graded again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.case_selection import select_cases
from grader.core.picture import Drawing
from grader.core.rubric import Release, Rubric
from grader.core.verdict import Feedback, Judged
from grader.judge import score
from grader.labs import open_lab
from grader.result.points import rescored
from grader.runtime.protocol import GradingOptions
from grader.tests.support.command import ROOT, SAMPLES
from grader.tests.support.graded import all_graded, graded
from grader.tests.support.same_result import same_result

IN_C = (
    "compile_error/sign_compare",
    "memory_leak/free_keeps_l2_tables",
    "wrong_answer/four_common_mistakes",
)
IN_PYTHON = ("wrong_answer/half_written",)


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


@pytest.mark.parametrize("change", [shifted, concentrated])
@pytest.mark.parametrize("public_only", [False, True], ids=["all", "public"])
@pytest.mark.parametrize(
    "sample", [("paged_kv", name) for name in IN_C] + [("scheduler", name) for name in IN_PYTHON], ids=lambda it: it[1]
)
def test_another_rubric_gives_what_a_grading_gives(
    sample: tuple[str, str], *, public_only: bool, change: Callable[[Rubric], Rubric]
) -> None:
    """Points, verdict, costs, the order of causes, what would have been scored."""
    name, folder = sample
    lab = open_lab(name)
    other = change(lab.rubric)
    selected = select_cases(lab, seed=lab.rubric.seed, pattern="[a-d]*/*", public_only=public_only)
    first, second = (
        pipeline.grade(
            ROOT / "submissions" / name / folder,
            replace(lab, rubric=rubric),
            selected.cases,
            GradingOptions(memory_checker=False),
            hidden=selected.hidden,
            draw=Drawing.NOTHING,
        )
        for rubric in (lab.rubric, other)
    )
    again = rescored(first, other)

    assert score.rescored(first.rules, other) == second.rules
    assert score.rescored(first.would_rules, other) == second.would_rules
    if change is shifted:  # no rule is worth nothing
        assert again is not None
    if again is not None:
        assert same_result(again, second)
        back = rescored(again, lab.rubric)
        assert back is not None
        assert same_result(back, first)
        assert again.verdict is first.verdict


def test_where_other_rules_lose_points_a_grading_is_needed() -> None:
    """The rule of a cause is one that lost points, and a rule without points cannot."""
    rubric = open_lab("paged_kv").rubric
    record = graded("paged_kv", SAMPLES / "wrong_answer" / "no_copy_on_write")

    assert rescored(record, shifted(rubric)) is not None
    assert rescored(record, concentrated(rubric)) is None


def test_what_would_have_been_scored_is_rescored_too() -> None:
    """By rule, as the score itself."""
    record = graded("paged_kv", SAMPLES / "compile_error" / "sign_compare")
    again = rescored(record, shifted(open_lab("paged_kv").rubric))

    assert again is not None
    assert record.would_score == sum(rule.points for rule in record.would_rules)
    assert again.would_score == sum(rule.points for rule in again.would_rules)
    assert [rule.points for rule in again.would_rules] != [rule.points for rule in record.would_rules]


@pytest.mark.parametrize(("hand_in", "feedback"), [(None, Feedback.RULES), (2, Feedback.RULES), (3, Feedback.SCORE)])
def test_what_students_see_is_decided_when_it_is_graded(hand_in: int | None, feedback: Feedback) -> None:
    """And again when it is rescored; the number of the hand-in stays in the record."""
    lab = open_lab("paged_kv")
    policy = replace(lab.rubric, feedback=Feedback.RULES, releases=(Release(feedback=Feedback.SCORE, hand_ins=3),))
    cases = select_cases(lab, seed=1, pattern="destroy/*").cases
    record = pipeline.grade(SAMPLES / "wrong_answer" / "all_null", replace(lab, rubric=policy), cases, hand_in=hand_in)
    again = rescored(record, lab.rubric)

    assert (record.feedback, record.hand_in) == (feedback, hand_in)
    assert again is not None
    assert again.feedback is Feedback.FULL
    assert rescored(again, policy) == record
