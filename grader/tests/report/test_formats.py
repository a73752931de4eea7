"""What every format says of single records, each read by who really reads it; none tells of hidden cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from grader.core.record import Environment, Student
from grader.core.verdict import Finding, SourceLine, Verdict, Visibility
from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import View
from grader.tests.support.handmade import TOOLS, outcome, record_of, secret_record
from grader.tests.support.points_read_back import TOLD, of_record
from grader.tests.support.readers import RUNNER

_LINE = SourceLine(file="solution.c", line=7, function="append_kv")


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"json"}))
def test_students_read_nothing_of_a_hidden_case_but_its_title(name: str) -> None:
    """Its operations, values, lines and name are in the instructor's report only. The record itself is all of it."""
    for record in (secret_record(), secret_record(outcome("append/x"))):
        seen, whole = (FORMATS[name](record, View(instructor=who)) for who in (False, True))

        assert "secret" not in seen
        assert "31337" not in seen
        assert name == "classroom50" or "secret" in whole


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


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_reports_of_one_record_are_the_same(name: str) -> None:
    """Nothing in them comes from a clock, a dictionary's order or chance."""
    record = secret_record(outcome("append/x"))

    assert FORMATS[name](record, View()) == FORMATS[name](record, View())


def test_a_table_of_nobody_is_a_heading() -> None:
    """Who asks for an empty class gets no error."""
    assert {len(book([]).splitlines()) for name, book in GRADEBOOKS.items() if name != "jsonl"} == {1}


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"text", "json", "html"}))
def test_a_small_record_in_every_format(name: str, golden: Callable[[str, str], None]) -> None:
    """To be read: one rule, a public case, a hidden one, a line."""
    found = Finding(
        rule="address", verdict=Verdict.WRONG_ANSWER, message="block 0, slot 2 is untouched, expected 3",
        hint="The word belongs into slot 2.", case="append/x",
        operation=3, field="block 0, slot 2", expected="3", actual="untouched", source=(_LINE,),
    )  # fmt: skip
    hidden = outcome("append/y", visibility=Visibility.HIDDEN, findings=(1,))
    made = record_of(
        outcome("append/x", findings=(0,)), hidden, one_cause=False, findings=(found, replace(found, case="append/y")),
        environment=Environment(tools=TOOLS, grader="0.1.0"),
    )  # fmt: skip
    record = replace(made, submission=replace(made.submission, file="solution.c", sha256="0"))
    view = View(variables=RUNNER, time="2026-11-21T18:00:00Z")

    golden(f"format__{name}.txt", FORMATS[name](record, view))


@pytest.mark.parametrize("name", sorted(GRADEBOOKS.keys() - {"jsonl"}))
def test_a_small_class_in_every_table(name: str, golden: Callable[[str, str], None]) -> None:
    """Each member of a group has a row, and so has who handed in nothing, and whom the grader failed."""
    group = (Student(name="Ada Maria Lovelace", sid="1", email="ada@example.org"), Student(name="Hopper, Grace"))
    made = record_of()
    ours = record_of(verdict=Verdict.JUDGE_ERROR, score=None, rules=())
    records = [replace(made, submission=replace(made.submission, students=group)), ours]

    golden(f"gradebook__{name}.txt", GRADEBOOKS[name](records, [Student(name="Alan Turing", section="B")]))
