"""All formats say the same of every labelled sample, each read by who really reads it."""

from __future__ import annotations

import pytest

from grader.labs.paged_kv.lab import lab
from grader.report import FORMATS, GRADEBOOKS
from grader.report.view import View
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import all_graded
from grader.tests.support.points_read_back import BOOKS, TOLD, of_record
from grader.tests.support.readers import READERS

_FOLDERS = sorted(path for path in SAMPLES.glob("*/*") if path.is_dir())
_AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, len(_FOLDERS), _AT_ONCE), ids=lambda first: _FOLDERS[first].name)
def test_all_formats_agree_on_all_samples(first: int) -> None:
    """Score, points of each rule, passed or not; and those of every third are well-formed for their readers.

    `python -m grader.tests.trials.all_reports` reads those of all samples.
    """
    view = View()
    found = all_graded(lab().name, _FOLDERS[first : first + _AT_ONCE])
    for number, record in enumerate(found, start=first):
        truth = of_record(record)
        for name, render in FORMATS.items():
            if name == "json":  # the record itself, see test_schema.py
                continue
            report = render(record, view)
            if number % 3 == 0:
                READERS[name](report, view)
            told = TOLD[name](report)

            assert told.agrees(truth), (name, record.submission.name, told)
        everything = TOLD["text"](FORMATS["text"](record, View(everything=True)))

        assert everything.agrees(truth), (record.submission.name, everything)
        assert (everything.rules is None) == (not record.score or record.verdict.passed or not record.outcomes)
    for name, book in GRADEBOOKS.items():
        table = book(found)
        rows = BOOKS[name](table)
        BOOK_READERS[name](table)

        assert rows.keys() == {record.submission.name for record in found}
        assert all(rows[record.submission.name].agrees(of_record(record)) for record in found)
