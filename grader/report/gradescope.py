"""Gradescope's `results.json`: one visible test for each rule, whole points.

A hidden test would hide the total from students, so hidden cases are text within a test, with their titles only.
No time is reported, because the time that a program takes in a hidden case would reveal information about that case.
"""

from __future__ import annotations

from typing import Any

from grader.core.record import Record
from grader.core.verdict import Audience, RuleScore
from grader.report import text
from grader.report.document import Document, View, as_json
from grader.report.rule_summary import judged, rule_summary
from grader.report.text import ReportPart


def render(record: Record, view: View) -> Document:
    """Return the whole file. When the grader failed it has no score, which Gradescope shows as a failed autograder."""
    results: dict[str, Any] = {
        "output": text.render(
            record, audience=view.audience, without=(ReportPart.POINTS, ReportPart.CASES), everything=True
        ),
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "extra_data": {
            "lab": record.lab,
            "verdict": record.verdict,
            "sha256": record.submission.sha256,
            "seed": record.seed,
            "grader": record.environment.grader,
            "complete": record.complete,
        },
    }
    if record.score is not None:
        rules = enumerate(judged(record), start=1)
        results["score"] = record.score
        results["tests"] = [_test(record, number, rule, view.audience) for number, rule in rules]
    return as_json(results)


def _test(record: Record, number: int, rule: RuleScore, audience: Audience) -> dict[str, Any]:
    return {
        "number": str(number),
        "name": f"{rule.rule}: {rule.title}",
        "score": rule.points,
        "max_score": rule.max_points,
        "status": "passed" if rule.points == rule.max_points else "failed",
        "output": rule_summary(record, rule, audience),
        "tags": [rule.rule],
        "visibility": "visible",
    }
