"""`grade run --format NAME`: every format is reached, tables take many submissions, files are whole."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import View
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.points_read_back import TOLD
from grader.tests.support.readers import READERS, RUNNER

RIGHT = SAMPLES / "accepted" / "yoda_crlf"
WRONG = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
QUICK = ("--without-memory-checker", *FEW)


def test_help_lists_all_formats() -> None:
    """Tables of many submissions too."""
    said = " ".join(grade("run", "--help").out.replace("│", " ").split())

    assert ", ".join(FORMATS) in said
    assert ", ".join(GRADEBOOKS) in said


@pytest.mark.parametrize("name", ["gradescope", "junit"])
def test_a_report_is_written_to_a_file(name: str, tmp_path: Path) -> None:
    """Whole, and the exit code is that of any other run."""
    path = tmp_path / "report"
    said = grade("run", WRONG, *QUICK, "--format", name, "--output", path)

    READERS[name](path.read_text(encoding="utf-8"), View())
    assert (said.code, said.out, said.err) == (1, "", "")


def test_a_table_holds_all_submissions(tmp_path: Path) -> None:
    """Printed or written, in the order in which they were named."""
    path = tmp_path / "points.csv"
    printed = grade("run", RIGHT, WRONG, *QUICK, "--format", "csv")
    written = grade("run", RIGHT, WRONG, *QUICK, "--format", "csv", "--output", path)

    BOOK_READERS["csv"](printed.out)
    assert (printed.code, written.code, written.all) == (1, 1, "")
    assert path.read_text(encoding="utf-8") == printed.out
    assert [line.split(",")[0] for line in printed.out.splitlines()] == ['"submission"', f'"{RIGHT}"', f'"{WRONG}"']


def test_the_runner_of_classroom_50_says_whose_result_it_is() -> None:
    """By its variables; the time is now, in UTC."""
    said = grade("run", RIGHT, *QUICK, "--format", "classroom50", variables=RUNNER)
    result = json.loads(said.out)

    READERS["classroom50"](said.out, View(variables=RUNNER))
    assert (result["classroom"], result["submission"], result["review"]) == ("c", "submit/1", RUNNER["COMMIT_URL"])
    assert datetime.fromisoformat(result["datetime"]).utcoffset() is not None


def test_annotations_are_obeyed_in_the_log_of_a_workflow() -> None:
    """They are meant for it; nothing stops them there, and the file is named as the repository knows it."""
    said = grade("run", ".", *QUICK, "--format", "annotations", variables={"GITHUB_ACTIONS": "true"}, cwd=WRONG)

    READERS["annotations"](said.out, View(workflow=True))
    assert said.out.startswith("::error file=llm_memory.c,")


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
