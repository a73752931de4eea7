"""Readers of the tables of a class: spreadsheets, and the importers that the tables are made for."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable

from grader.report.document import View
from grader.tests.support.readers import reads_json


def _table(report: str, first: str) -> list[list[str]]:
    """Read a table as a spreadsheet does; its rows must have one length, and no cell may be a formula."""
    rows = list(csv.reader(io.StringIO(report), strict=True))

    assert rows[0][0] == first
    assert len({len(row) for row in rows}) == 1
    assert not any(re.match(r"\s*[=+\-@＝＋－＠]|[\t\r\n]", cell) for row in rows for cell in row)
    return rows


def _reads_own(report: str) -> None:
    _table(report, "submission")


def _reads_gradescope_export(report: str) -> None:
    """A question's column is named `1: Title (2.0 pts)`; decisions of people, if any, are in a last column."""
    rows = _table(report, "First Name")
    questions = [name for name in rows[0][13:] if name != "Remarks"]

    assert rows[0].index("Status") == 7
    assert {row[7] for row in rows[1:]} <= {"Graded", "Ungraded", "Missing"}
    assert [name for name in questions if not re.fullmatch(r"(?s)\d+: .+ \(\d+\.\d+ pts\)", name)] == []
    assert "Remarks" not in rows[0][:-1]


_CANVAS_TOTALS = re.compile(
    "Current Score|Current Points|Current Grade|Final Score|Final Points|Final Grade"
    "|Override Score|Override Grade|Override Status"
)
_CANVAS_NOBODY = re.compile(r"\s*(Muted|Manual Posting.*)?\s*", re.IGNORECASE)


def _reads_canvas(report: str) -> None:
    """Select rows and columns as Canvas' importer does (lib/gradebook_importer.rb of instructure/canvas-lms).

    A semicolon is no separator where a comma follows a quoted cell. The columns that identify a student are found by
    their position. Every column after these is an assignment, except those that are named like Canvas' totals; of
    several with one name the first is read. An empty cell deletes a grade.
    """
    rows = _table(report, "Student")
    heading, *others = rows
    assignments = [place for place in range(5, len(heading)) if not _CANVAS_TOTALS.search(heading[place])]
    maxima = [row for row in others if "Points Possible" in row[0]]
    students = [row for row in others if row not in maxima]

    assert report.startswith('"Student",')
    assert heading[:5] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    assert assignments
    assert [heading.index(heading[place]) for place in assignments] == assignments
    assert not any(re.match(r"Override (Score|Status)( \(.*\))?$", name) for name in heading)
    assert others[:1] == maxima
    assert not any("read only" in cell for row in maxima for cell in row)
    for row in students:
        assert row[0]
        assert not all(_CANVAS_NOBODY.fullmatch(cell) for cell in row)
        assert any(row[place] for place in assignments)
    for row in others:
        assert all(re.fullmatch(r"\d*", row[place]) for place in assignments)


def _reads_lines(report: str) -> None:
    """Each line is a record."""
    for line in report.splitlines():
        reads_json(line, View())


BOOK_READERS: dict[str, Callable[[str], None]] = {
    "csv": _reads_own,
    "gradescope-csv": _reads_gradescope_export,
    "canvas-csv": _reads_canvas,
    "jsonl": _reads_lines,
}
"""A real reader for each table of many records."""
