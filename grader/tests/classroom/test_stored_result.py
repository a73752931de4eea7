"""What people decide is checked as a whole, counts in every number, and stands in every report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from grader.classroom import stored_result
from grader.core.errors import ClassFileError
from grader.core.record import Override, Record
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import View
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded
from grader.tests.support.handmade import outcome, record_of
from grader.tests.support.points_read_back import BOOKS, TOLD, of_record
from grader.tests.support.readers import READERS

_RIGHT = """[[override]]
submission = "alice"
rule = "address"
points = 5
reason = "the slot is right"
by = "the head TA"
"""
DECIDED = Override(submission="alice", rule="address", points=6, reason="=it is right", by="the head TA")


def loaded(folder: Path, text: str) -> tuple[Override, ...]:
    """The overrides of that text, in a class of two."""
    path = folder / "decided.toml"
    path.write_text(text, encoding="utf-8")
    return stored_result.load_overrides(path, lab().rubric, ["alice", "bob"])


def test_all_mistakes_are_said_with_their_lines(tmp_path: Path) -> None:
    """Of every table, in the order of the file."""
    wrong = _RIGHT.replace('"alice"', '"alise"').replace("points = 5", "points = 7").replace("reason =", "raison =")
    again = _RIGHT.replace('"the head TA"', '" "')
    with pytest.raises(ClassFileError) as caught:
        loaded(tmp_path, f"{_RIGHT}{wrong}{again}")

    lines = [line.removeprefix(f"{tmp_path}/decided.toml:") for line in str(caught.value).splitlines()]
    assert lines == [
        '7: override.reason is missing: write reason = "...", which the student will read',
        "8: there is no submission 'alise' (did you mean alice?)",
        "10: override.points must be a whole number from 0 to 5, not 7",
        "11: unknown key 'override.raison' (did you mean reason?)",
        "15: address of alice was decided above already",
        '18: override.by is empty: write by = "...", who decided it',
    ]
    with pytest.raises(ClassFileError, match=r"decided.toml:1: override must contain only tables"):
        loaded(tmp_path, "override = 3")


def test_an_override_counts_in_every_number() -> None:
    """Rule, score and verdict are those after it; accepted is exactly who has all points."""
    record = record_of(outcome("append/one"))
    up = stored_result.applied(record, [DECIDED])
    down = stored_result.applied(up, [Override(submission="alice", rule="address", points=0, reason="r", by="b")])

    assert (up.score, up.verdict, up.rules[0].points, up.overrides[0].was) == (6, Verdict.ACCEPTED, 6, 1)
    assert (down.score, down.verdict) == (0, Verdict.WRONG_ANSWER)
    other = Override(submission="bob", rule="address", points=6, reason="r", by="b")
    assert stored_result.applied(record, [other]) is record


def raised(record: Record, rules: Iterable[str]) -> Record:
    """Somebody gave these rules all their points."""
    full = {rule.rule: rule.max_points for rule in record.rules}
    return stored_result.applied(record, [decided(record, rule, full[rule]) for rule in rules])


def decided(record: Record, rule: str, points: int) -> Override:
    """Somebody gave that rule so many points."""
    name = record.submission.name
    return Override(submission=name, rule=rule, points=points, reason="=it is right", by="the head TA")


def ways(record: Record) -> Iterator[Record]:
    """All that people may decide: all points, all of one rule, some of one, none of one."""
    lost = [rule.rule for rule in record.rules if rule.points < rule.max_points]
    if lost:
        yield raised(record, lost)
        yield raised(record, lost[:1])
        yield stored_result.applied(record, [decided(record, lost[0], 1)])
    for rule in [rule for rule in record.rules if rule.points][:1]:
        yield stored_result.applied(record, [decided(record, rule.rule, 0)])


@pytest.mark.parametrize(
    "sample",
    [
        *("accepted/yoda_crlf", "wrong_answer/four_common_mistakes", "run_time_error/append_asserts_engine"),
        *("compile_error/sign_compare", "compile_error/main_with_test", "rejected/ifunc_resolver"),
    ],
)
def test_all_formats_agree_on_what_people_decided(sample: str) -> None:
    """Points and pass or fail are those after it, everywhere; each says who decided, what and why."""
    records = list(ways(graded(lab().name, SAMPLES / sample)))
    assert records
    for record in records:
        truth = of_record(record)
        for name, render in FORMATS.items():
            report = render(record, View())
            READERS[name](report, View())

            assert TOLD[name](report).agrees(truth), (name, record.verdict, record.overrides)
            assert all(text in " ".join(unescape(report).split()) for text in ("the head TA", "it is right")), name
        for name, book in GRADEBOOKS.items():
            table = book([record])
            BOOK_READERS[name](table)

            assert BOOKS[name](table)[record.submission.name].agrees(truth), name
            assert "the head TA" in table


def test_what_costs_no_point_any_more_is_no_error() -> None:
    """A case that fails for a rule whose points people gave back is told, as a note that says who did it."""
    record = stored_result.applied(record_of(outcome("append/one")), [DECIDED])
    runs = {run["tool"]["driver"]["name"]: run for run in json.loads(FORMATS["sarif"](record, View()))["runs"]}
    said = "address: 6 points instead of 1, decided by the head TA: =it is right"

    (found,), (decision,) = runs["replay"]["results"], runs["people"]["results"]
    assert (found["level"], decision["level"], decision["message"]["text"]) == ("note", "note", said)
    assert found["suppressions"] == [{"kind": "external", "status": "accepted", "justification": said}]
    assert "::error" not in FORMATS["annotations"](record, View())
    assert f"::notice file=alice,title=decided by people::{said}" in with_source(record)
    (suite,) = ET.fromstring(FORMATS["junit"](record, View()))
    assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")


def with_source(record: Record) -> str:
    """Its annotations, with a file at which they can stand."""
    return FORMATS["annotations"](replace(record, submission=replace(record.submission, sha256="0")), View())


def test_points_that_people_took_are_missed() -> None:
    """Nothing is wrong with the program, and yet it has not all points: that is said as an error, not as a note."""
    right = record_of(outcome("append/one", passed=True, clean=True, verdict=Verdict.ACCEPTED))
    right = replace(right, verdict=Verdict.ACCEPTED, score=6, rules=(replace(right.rules[0], points=6),))
    record = stored_result.applied(right, [replace(DECIDED, points=2)])
    people = json.loads(FORMATS["sarif"](record, View()))["runs"][-1]

    assert people["results"][0]["level"] == "error"
    assert "::error" in FORMATS["annotations"](record, View())
    assert "2 points instead of 6" in json.loads(FORMATS["gradescope"](record, View()))["tests"][0]["output"]


def test_the_report_of_who_was_given_all_points_names_no_cause() -> None:
    """Whoever has nothing to mend is not told where to start."""
    record = raised(
        graded(lab().name, SAMPLES / "wrong_answer/four_common_mistakes"), [one.id for one in lab().rubric.rules]
    )
    reports = [FORMATS[name](record, View()) for name in ("text", "html")]

    assert record.verdict is Verdict.ACCEPTED
    assert not any(text in report for report in reports for text in ("Start here", "What goes wrong", "full marks"))


def test_a_decision_counts_no_more_than_the_rule_is_worth_and_says_so() -> None:
    """With fewer cases a rule is worth less."""
    record = record_of(outcome("append/one"))
    less = replace(record, rules=(replace(record.rules[0], points=1, max_points=2),))
    made = stored_result.applied(less, [decided(less, less.rules[0].rule, 4)])

    assert (made.rules[0].points, made.overrides[0].points, made.overrides[0].was) == (2, 2, 1)
