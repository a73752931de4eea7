"""A table's columns are those of all its records, whichever comes first; an empty cell is no zero, and clears none."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from grader.core.record import Record, Student
from grader.core.verdict import Verdict
from grader.report import GRADEBOOKS
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.handmade import record_of

OURS = record_of(verdict=Verdict.JUDGE_ERROR, score=None, rules=())


def table(name: str, *records: Record) -> list[list[str]]:
    """Heading and rows, as a spreadsheet reads them."""
    text = GRADEBOOKS[name](records, [Student(name="Alan Turing")])
    BOOK_READERS[name](text)
    return list(csv.reader(io.StringIO(text)))


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


def test_a_record_without_a_score_adds_no_column() -> None:
    """Canvas deletes a grade whose cell is empty, and such a record does not know whether hidden cases were run."""
    public = replace(record_of(score=3, rules=()), public_only=True)
    heading, *rows = table("canvas-csv", public, OURS)

    assert [name for name in heading if "public part" in name] == heading[-1:]
    assert {len(row) for row in rows} == {len(heading)}
