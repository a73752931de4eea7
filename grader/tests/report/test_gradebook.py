"""A table's columns are those of all its records, whichever comes first; an empty cell is no zero, and clears none."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from grader.core.record import Record, Student
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.report import GRADEBOOKS
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import graded
from grader.tests.support.handmade import record_of
from grader.tests.support.points_read_back import BOOKS, of_record

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


@pytest.mark.parametrize("first", ["rejected/ifunc_resolver", "compile_error/sign_compare"])
def test_a_first_record_of_which_nothing_was_run_has_all_columns(first: str) -> None:
    """Its rules have no points, and yet they are those of the others."""
    found = [graded(lab().name, SAMPLES / name) for name in (first, "wrong_answer/four_common_mistakes")]
    for name, book in GRADEBOOKS.items():
        rows = BOOKS[name](book(found))

        assert all(rows[record.submission.name].agrees(of_record(record)) for record in found)
    assert table("csv", *found)[0] == table("csv", *reversed(found))[0]
    assert len(table("csv", *found)[0]) == 11 + len(lab().rubric.rules)
