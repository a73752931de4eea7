"""`grade run --format NAME`: every format is reached, tables take many submissions, files are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.report.document import View
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.points_read_back import TOLD
from grader.tests.support.readers import READERS

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


def test_one_grading_makes_several_reports(tmp_path: Path) -> None:
    """The printed one and the files tell the same, and files are plain in the log of a workflow too."""
    files = {"junit": tmp_path / "r.xml", "summary": tmp_path / "s.md", "text": tmp_path / "t.txt"}
    also = [word for name, path in files.items() for word in ("--also", f"{name}={path}")]
    said = grade("run", WRONG, *QUICK, *also, "--format", "gradescope", variables={"GITHUB_ACTIONS": "true"})
    truth = TOLD["gradescope"](said.out)

    for name, path in files.items():
        report = path.read_text(encoding="utf-8")
        READERS[name](report, View())
        told = TOLD[name](report)
        assert (told.score, told.full, told.passed) == (truth.score, truth.full, truth.passed)
    assert said.code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--also", "junits=x"], "there is no format 'junits' (did you mean junit?)"),
        (["--also", "junit"], "--also junit: write FORMAT=FILE"),
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
