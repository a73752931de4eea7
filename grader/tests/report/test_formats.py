"""What every format says of single records, each read by who really reads it; none tells of hidden cases."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grader.core.verdict import Verdict
from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import View
from grader.tests.support.graded import drawn
from grader.tests.support.handmade import outcome, record_of
from grader.tests.support.points_read_back import TOLD, of_record


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"json", "text"}))
def test_a_failing_grader_gives_no_points(name: str) -> None:
    """Nor takes some: no score is written, and what a platform makes of that is a failed run."""
    record = record_of(verdict=Verdict.JUDGE_ERROR, score=None, rules=())
    report = FORMATS[name](record, View())

    assert '"score": 0' not in report
    assert "0 of" not in report
    if name in ("gradescope", "classroom50"):
        assert "score" not in json.loads(report)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_point_that_no_case_of_its_rule_cost_is_missed(name: str) -> None:
    """A case that passes for its rule and loses memory, where the rule of leaks has no points."""
    unclean = outcome("append/x", passed=True, verdict=Verdict.MEMORY_LEAK)
    made = record_of(unclean, score=5, verdict=Verdict.MEMORY_LEAK)
    record = replace(made, rules=(replace(made.rules[0], points=5, passed=9),))

    assert TOLD[name](FORMATS[name](record, View())).agrees(of_record(record))


def test_sarif_tells_errors_outside_functions_apart() -> None:
    """A code scanner knows a problem by its fingerprint: equal ones would be shown once."""
    record = drawn("sign_compare")
    (first,) = record.findings
    both = replace(record, findings=(first, replace(first, message="'n' is unused")))
    log = json.loads(FORMATS["sarif"](both, View()))

    marks = [result["partialFingerprints"] for result in log["runs"][0]["results"]]
    assert len(marks) == 2
    assert marks[0] != marks[1]


def test_a_table_of_nobody_is_a_heading() -> None:
    """Who asks for an empty class gets no error."""
    assert {len(book([]).splitlines()) for name, book in GRADEBOOKS.items() if name != "jsonl"} == {1}
