"""The public part: hidden cases are not run and count all the same, so that no number of it promises too much."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.case_files import HIDDEN_FILE, hidden_text, select_cases, weights
from grader.assignment.lab import Settings
from grader.classroom.workers import grading_plan
from grader.core.case import Case
from grader.core.errors import CaseFileError, RubricError
from grader.core.record import Record, from_json
from grader.core.verdict import Verdict, Visibility
from grader.labs.paged_kv.lab import lab
from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import View
from grader.runtime.protocol import GradingOptions
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.points_read_back import BOOKS, TOLD, of_record
from grader.tests.support.readers import READERS

_SOME = ["accepted/yoda_crlf", "wrong_answer/no_copy_on_write", "compile_error/sign_compare"]


@cache
def every_case() -> tuple[Case, ...]:
    """All of them, public and hidden."""
    return select_cases(lab(), seed=1).cases


@cache
def public(name: str) -> Record:
    """The public part of a sample's grading, without Valgrind."""
    chosen = select_cases(lab(), seed=1, public_only=True)
    return pipeline.grade(
        SAMPLES / name, lab(), chosen.cases, GradingOptions(seed=1, memory_checker=False), hidden=chosen.hidden
    )


def words(record: Record) -> str:
    """What every report says of its points."""
    return f"public part: {record.score} of {record.max_score} points; hidden cases not run here"


@pytest.mark.parametrize("sample", _SOME[1:])
def test_all_formats_tell_the_same_most(sample: str) -> None:
    """M, and the words by which nobody takes it for the whole; their readers still read them."""
    record = public(sample)
    truth = of_record(record)

    assert (record.score == record.max_score) == record.verdict.passed
    for name, render in FORMATS.items():
        report = render(record, View())
        READERS[name](report, View())

        assert TOLD[name](report).agrees(truth), name
        assert name == "json" or words(record) in report.replace("&#59;", ";").replace("&#58;", ":"), name
    for name, book in GRADEBOOKS.items():
        table = book([record])
        BOOK_READERS[name](table)

        assert all(row.agrees(truth) for row in BOOKS[name](table).values()), name
    assert words(record) in GRADEBOOKS["csv"]([record])
    assert "hidden cases not run here" in GRADEBOOKS["canvas-csv"]([record])


def test_the_public_part_is_graded_from_the_command_line(tmp_path: Path) -> None:
    """0 when it has all points that can be had so; the cases that are listed are those that are run."""
    said = grade("run", SAMPLES / _SOME[0], "--public-only", "--without-memory-checker", "--format", "json")
    record = from_json(said.out)
    few = grade("cases", "--public-only", "--case", "append/*")

    assert (said.code, record.verdict, record.public_only) == (0, Verdict.ACCEPTED, True)
    assert {outcome.visibility for outcome in record.outcomes} == {Visibility.PUBLIC}
    assert "hidden cases are not in this list" in few.out
    assert "│ hidden" not in few.out
    assert "│ public" in few.out


def test_a_class_is_graded_by_its_public_part(tmp_path: Path) -> None:
    """Its records are not those of whole gradings, and its last line says what was left out."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ann.c").write_bytes((SAMPLES / _SOME[1] / "llm_memory.c").read_bytes())
    settings = Settings(lab="paged_kv", case=FEW[1], memory_checker=False)
    whole, mine = grading_plan(settings), grading_plan(replace(settings, public_only=True))
    options = ("--store", tmp_path / "s", "--without-memory-checker", "--jobs", "1", *FEW, "--public-only")

    said = grade("batch", tmp_path / "in", *options)

    assert f"of {mine.max_score}, public part: hidden cases not run here" in said.out
    assert whole.key("x") != mine.key("x")


def tree(folder: Path, *cases: Case, known: str | None = None) -> Path:
    """A folder of these cases as students get it."""
    chosen = lab()
    for case in cases:
        path = folder / f"{case.name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(case.path.read_bytes())
    text = hidden_text(weights(chosen.rubric, every_case())) if known is None else known
    (folder / HIDDEN_FILE).write_text(text, encoding="utf-8")
    return folder


def test_where_hidden_cases_are_not_the_part_is_implied_and_the_same(tmp_path: Path) -> None:
    """A file says what they weigh; without it their absence would look like full marks."""
    whole = select_cases(lab(), seed=1, public_only=True)
    there = replace(lab(), cases=tree(tmp_path, *whole.cases))
    found = select_cases(there, seed=1)

    assert found.hidden == whole.hidden
    assert [case.name for case in found.cases] == [case.name for case in whole.cases]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ("", r"hidden.toml:1: write a table \[weights\]"),
        ("weights = 3\n", r"hidden.toml:1: write a table \[weights\]"),
        ("[weights]\ncow = -1\n", r"hidden.toml:2: weights.cow must be a whole number from 0"),
        ("[weights]\ncows = 1\n", r"hidden.toml:2: unknown key 'weights.cows' \(did you mean cow\?\)"),
        ("[weights]\ncow = 1\n", r"weights.leak is missing"),
    ],
)
def test_a_wrong_word_about_hidden_cases_is_a_wrong_rubric(known: str, said: str, tmp_path: Path) -> None:
    """With the line and what to write."""
    there = replace(lab(), cases=tree(tmp_path, known=known))

    with pytest.raises(RubricError, match=said):
        select_cases(there, seed=1)


def test_a_hidden_case_among_public_ones_is_refused(tmp_path: Path) -> None:
    """It would count twice; and where that file is, students read along."""
    hidden = next(case for case in every_case() if case.visibility is Visibility.HIDDEN)
    there = replace(lab(), cases=tree(tmp_path, hidden))

    with pytest.raises(CaseFileError, match="hidden cases are elsewhere"):
        select_cases(there, seed=1)
