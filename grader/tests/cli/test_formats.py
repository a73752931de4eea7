"""`grade run --format NAME`: every format is reached, tables take many submissions, files are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import FEW, SAMPLES, grade

RIGHT = SAMPLES / "accepted" / "yoda_crlf"
WRONG = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
QUICK = ("--without-memory-checker", *FEW)


def test_a_table_holds_all_submissions(tmp_path: Path) -> None:
    """Printed or written, in the order in which they were named."""
    path = tmp_path / "points.csv"
    printed = grade("run", RIGHT, WRONG, *QUICK, "--format", "csv")
    written = grade("run", RIGHT, WRONG, *QUICK, "--format", "csv", "--output", path)

    BOOK_READERS["csv"](printed.out)
    assert (printed.code, written.code, written.all) == (1, 1, "")
    assert path.read_text(encoding="utf-8") == printed.out
    assert [line.split(",")[0] for line in printed.out.splitlines()] == ['"submission"', f'"{RIGHT}"', f'"{WRONG}"']


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--also", "junits=x"], "there is no format 'junits' (did you mean junit?)"),
        (["--also", "junit"], "--also junit: write FORMAT=FILE"),
        (["--also", "junit=x", "--also", "html=x"], "--also html=x: another report is written to this file"),
        (["--also", "junit=x", "--output", "x"], "--also junit=x: another report is written to this file"),
        (["--also", "junit=x", "--format", "csv"], "csv is a table of many submissions"),
        (["--also", "junit=x", str(RIGHT)], "one submission; grade several one by one"),
    ],
)
def test_a_report_that_cannot_be_made_is_said_before_grading(words: list[str], said: str, tmp_path: Path) -> None:
    """And nothing is written."""
    ended = grade("run", WRONG, *QUICK, *words, cwd=tmp_path)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert list(tmp_path.iterdir()) == []
