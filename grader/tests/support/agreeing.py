"""Whether all formats say the same of records, and can be read by who really reads them."""

from __future__ import annotations

from collections.abc import Sequence

from grader.core.record import Record
from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import View
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.points_read_back import BOOKS, TOLD, of_record
from grader.tests.support.readers import READERS

_VIEWS = (View(), View(instructor=True))


def formats_agree(record: Record) -> None:
    """Assert that each report is well-formed and says score, points of each rule, and passed or not."""
    truth = of_record(record)
    for name, render in FORMATS.items():
        for view in _VIEWS:
            READERS[name](render(record, view), view)
        if name == "json":  # the record itself, see test_schema.py
            continue
        points = TOLD[name](render(record, _VIEWS[0]))

        assert points.agrees(truth), (name, record.submission.name, points)
    everything = TOLD["text"](FORMATS["text"](record, View(everything=True)))

    assert everything.agrees(truth), (record.submission.name, everything)
    assert (everything.rules is None) == (not record.score or record.verdict.passed or not record.outcomes)


def books_agree(records: Sequence[Record]) -> None:
    """Assert that each gradebook is well-formed and has a row with the score of each submission."""
    for name, book in GRADEBOOKS.items():
        table = book(records)
        rows = BOOKS[name](table)
        BOOK_READERS[name](table)

        assert rows.keys() == {record.submission.name for record in records}
        assert all(rows[record.submission.name].agrees(of_record(record)) for record in records)
