"""A lab in another language than C goes through the whole pipeline and every report: the walls hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.case_files import load, select_cases
from grader.core.errors import CaseFileError
from grader.core.picture import Drawing
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.report import FORMATS
from grader.report.document import View
from grader.tests.support.counter.lab import lab
from grader.tests.support.counter_house import BELOW, RIGHT

FORGETS = RIGHT.replace("total=$((total + $1))", "total=$1")


def graded(folder: Path, source: str) -> Record:
    """The record of this counter."""
    (folder / "counter.sh").write_text(source, encoding="utf-8")
    chosen = lab()
    cases = select_cases(chosen, seed=1).cases
    return pipeline.grade(folder, chosen, cases, draw=Drawing.ALL)


def points(record: Record) -> dict[str, int]:
    """By rule."""
    return {rule.rule: rule.points for rule in record.rules}


def test_a_right_counter_has_all_points(tmp_path: Path) -> None:
    """None of them for memory, which the language does not leave to a program."""
    record = graded(tmp_path, RIGHT)

    assert (record.verdict, record.score, record.max_score) == (Verdict.ACCEPTED, 100, 100)
    assert points(record) == {"starts": 10, "counts": 50, "below": 40}
    assert record.submission.source_file == "counter.sh"


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ("add_all [1,x] -> 6", "numbers of add_all must be a list of numbers, not '[1,x]'"),
        ("add_all 7 -> 6", "numbers of add_all must be a list of numbers, not '7'"),
        ("add_all [1] -> [1]", "add_all cannot return '[1]'; write a number from 0 to 10000 behind ->"),
        ("add_all [1]", "add_all has no reply; write a number from 0 to 10000 behind ->"),
        ("take 1 -> 1", "take cannot return '1'; write -> 0 or -> -1"),
    ],
)
def test_a_wrong_value_in_a_case_is_told(tmp_path: Path, operation: str, message: str) -> None:
    """With what to write instead."""
    text = (lab().cases / "basic" / "adds_all.toml").read_text(encoding="utf-8")
    (tmp_path / "x.toml").write_text(text.replace("add_all [1,2,3] -> 6", operation), encoding="utf-8")

    with pytest.raises(CaseFileError, match=re.escape(message)):
        load(tmp_path / "x.toml", lab().grammar, seed=1)


def test_reports_of_a_shell_script_speak_of_no_c(tmp_path: Path) -> None:
    """What students read takes its words from the lab and its runtime."""
    for source in (RIGHT, BELOW, FORGETS):
        text = str(FORMATS["text"](graded(tmp_path, source), View()))
        assert not [word for word in ("gcc", "Valgrind", "malloc", "allocat", "llm_", "repro.c") if word in text], text
