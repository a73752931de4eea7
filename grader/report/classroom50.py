"""Classroom 50's `result.json`: whole points, one test for each rule.

The runner sets environment variables that name the classroom, assignment and submission. Without them those fields are
left out, and Classroom 50's validator reports them.
"""

from __future__ import annotations

from typing import Any

from grader.core.record import Record
from grader.core.verdict import RuleScore
from grader.report.document import Document, View, as_json
from grader.report.phrases import decision_of, part_of
from grader.report.rule_summary import judged

_VARIABLES = {
    "classroom": ("CLASSROOM",),
    "assignment": ("ASSIGNMENT",),
    "submission": ("SUBMISSION_TAG",),
    "commit": ("COMMIT_URL",),
    "release": ("RELEASE_URL",),
    "review": ("REVIEW_URL", "COMMIT_URL"),
}


def render(record: Record, view: View) -> Document:
    """Return the whole file. When the grader failed it has no score, so the runner reports a failure of the grader."""
    result: dict[str, Any] = {"schema": "classroom50/result/v1"}
    for field, names in _VARIABLES.items():
        result[field] = next((view.variables[name] for name in names if view.variables.get(name)), "")
    result["datetime"] = view.time
    result["part"] = part_of(record)
    if record.score is not None:
        result |= {"score": record.score, "max-score": record.max_score}
    result["tests"] = [_test(record, rule) for rule in judged(record)]
    return as_json({field: value for field, value in result.items() if value != ""})


def _test(record: Record, rule: RuleScore) -> dict[str, Any]:
    """Return the test of a rule. A decision by people is in an additional field, which Classroom 50 preserves."""
    decision = decision_of(record, rule.rule)
    return {
        "test-name": f"{rule.rule}: {rule.title}",
        "passed": rule.points == rule.max_points,
        "score": rule.points,
        "max-score": rule.max_points,
    } | ({"message": decision} if decision else {})
