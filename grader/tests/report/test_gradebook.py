"""A table's columns are those of all its records, whichever comes first; an empty cell is no zero, and clears none."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from grader.core.record import Record, Student
from grader.core.verdict import RuleScore, Verdict
from grader.labs.paged_kv.lab import lab
from grader.report import GRADEBOOKS
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded
from grader.tests.support.handmade import record_of
from grader.tests.support.points_read_back import BOOKS, of_record


def rule(name: str, points: int, most: int) -> RuleScore:
    """A rule with its points."""
    return RuleScore(rule=name, title=name, handout="", points=points, max_points=most, cases=1, passed=0)


def scored(name: str, *rules: RuleScore) -> Record:
    """A record judged by these rules."""
    score, full = sum(one.points for one in rules), sum(one.max_points for one in rules)
    made = record_of(rules=rules, score=score, max_score=full)
    return replace(made, submission=replace(made.submission, name=name))


OURS = record_of(verdict=Verdict.JUDGE_ERROR, score=None, rules=())
OLD = scored("old", rule("list", 3, 4), rule("cow", 1, 6))
NEW = scored("new", rule("list", 2, 4), rule("cow", 8, 8), rule("leak", 5, 5))


def table(name: str, *records: Record) -> list[list[str]]:
    """Heading and rows, as a spreadsheet reads them."""
    text = GRADEBOOKS[name](records, [Student(name="Alan Turing")])
    BOOK_READERS[name](text)
    return list(csv.reader(io.StringIO(text)))


def test_our_own_table_has_a_column_for_every_rule_of_any_record() -> None:
    """The first one has none, for the grader failed; the second lacks a rule that was added later."""
    heading, *rows = table("csv", OURS, OLD, NEW)

    assert heading[11:] == ["list", "cow", "leak"]
    assert [row[11:] for row in rows] == [["", "", ""], ["3", "1", ""], ["2", "8", "5"], ["", "", ""]]


def test_a_question_of_gradescope_has_one_maximum() -> None:
    """Points of 6 do not stand below a title that says 8."""
    heading, *rows = table("gradescope-csv", OURS, OLD, NEW)

    assert heading[13:] == ["1: list (4.0 pts)", "2: cow (6.0 pts)", "3: cow (8.0 pts)", "4: leak (5.0 pts)"]
    assert [row[13:] for row in rows] == [["", "", "", ""], ["3", "1", "", ""], ["2", "", "8", "5"], ["", "", "", ""]]
    assert [row[6] for row in rows] == ["6", "10", "17", "17"]


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("Ada King", "Ada", "King"),
        ("King, Ada", "Ada", "King"),
        ("Ada Augusta King", "Ada Augusta", "King"),
        ("Plato", "Plato", ""),
        ("Bo", "Bo", ""),
        ("李白", "白", "李"),
        ("세종", "종", "세"),
        ("司馬光", "司馬光", ""),
        ("", "", ""),
    ],
)
def test_gradescope_has_first_and_last_names(name: str, first: str, last: str) -> None:
    """A name is divided only where nobody can doubt how."""
    named = replace(OURS, submission=replace(OURS.submission, students=(Student(name=name),)))
    _, row, *_ = table("gradescope-csv", named)

    assert row[:2] == [first, last]


def test_canvas_is_told_the_points_that_are_possible() -> None:
    """Of 10 and of 17 they are two assignments; nobody without a score has a row, whose empty cell would clear one."""
    heading, *rows = table("canvas-csv", OURS, replace(OURS, max_score=10), OLD, NEW)

    assert heading[5:] == ["paged_kv (6 points)", "paged_kv (10 points)", "paged_kv (17 points)"]
    assert [(row[0].strip(), *row[5:]) for row in rows] == [
        ("Points Possible", "6", "10", "17"),
        ("old", "", "4", ""),
        ("new", "", "", "15"),
    ]
    assert table("canvas-csv", OURS)[0][5:] == ["paged_kv"]


@pytest.mark.parametrize("first", ["rejected/ifunc_resolver", "compile_error/sign_compare"])
def test_a_first_record_of_which_nothing_was_run_has_all_columns(first: str) -> None:
    """Its rules have no points, and yet they are those of the others."""
    found = [graded(lab().name, SAMPLES / name) for name in (first, "wrong_answer/four_common_mistakes")]
    for name, book in GRADEBOOKS.items():
        rows = BOOKS[name](book(found))

        assert all(rows[record.submission.name].agrees(of_record(record)) for record in found)
    assert table("csv", *found)[0] == table("csv", *reversed(found))[0]
    assert len(table("csv", *found)[0]) == 11 + len(lab().rubric.rules)
