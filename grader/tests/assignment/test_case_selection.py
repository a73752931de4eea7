"""The public part: hidden cases are not run and count all the same, so that no number of it promises too much."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment.case_selection import HIDDEN_FILE, hidden_text, select_cases, weights
from grader.assignment.lab import Settings
from grader.classroom.batch import settings_of
from grader.classroom.fingerprint import grading_plan
from grader.classroom.store import Run
from grader.core.case import Case
from grader.core.errors import CaseFileError, RubricError
from grader.core.record import Record, from_json, to_json
from grader.core.verdict import RuleScore, Verdict, Visibility
from grader.judge.case_findings import CaseFindings
from grader.judge.score import rule_scores
from grader.labs.paged_kv.lab import lab
from grader.report import FORMATS, GRADEBOOKS
from grader.report.document import View
from grader.runtime.protocol import GradingOptions
from grader.tests.support.book_readers import BOOK_READERS
from grader.tests.support.command import FEW, SAMPLES, grade
from grader.tests.support.mistakes import MISTAKES
from grader.tests.support.points_read_back import BOOKS, TOLD, of_record
from grader.tests.support.programs import attempted, by_hand, changed, diagnosed_alone, first_case, judged, made, right
from grader.tests.support.readers import READERS

_FREE_COUNT = 6
"""Where free_local_blocks stands in a record."""

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


def test_only_public_cases_are_run_and_the_others_are_weighed() -> None:
    """What hidden cases weigh is by rule; for what is judged everywhere it is their number."""
    chosen = select_cases(lab(), seed=1, public_only=True)
    hidden = [case for case in every_case() if case.visibility is Visibility.HIDDEN]

    assert {case.visibility for case in chosen.cases} == {Visibility.PUBLIC}
    assert len(chosen.cases) + len(hidden) == len(every_case())
    assert chosen.hidden is not None
    assert chosen.hidden["leak"] == chosen.hidden["memory-error"] == len(hidden)
    assert "compile" not in chosen.hidden
    assert chosen.hidden["cow"] == sum(case.weight for case in hidden if case.rule == "cow") > 0


def test_a_pattern_leaves_the_weight_of_hidden_cases() -> None:
    """Else fewer cases would be worth more."""
    chosen = select_cases(lab(), seed=1, pattern="append/*", public_only=True)

    assert {case.name.partition("/")[0] for case in chosen.cases} == {"append"}
    assert chosen.hidden == select_cases(lab(), seed=1, public_only=True).hidden


@pytest.mark.parametrize(
    ("right_ones", "wrong_ones", "hidden", "points"),
    [(2, 0, 1, (4, 4)), (2, 0, 2, (3, 3)), (1, 1, 2, (1, 3)), (9, 1, 7, (2, 3)), (1, 0, 8, (0, 0)), (0, 1, 8, (0, 0))],
)
def test_a_rule_earns_its_share_of_all_its_cases(
    right_ones: int, wrong_ones: int, hidden: int, points: tuple[int, int]
) -> None:
    """floor(6 x passed / all), of floor(6 x public / all); a case that fails costs a point, were it in the rounding."""
    cases = [made(f"case{place}", "create_sequence 1 5 -> seq", rule="free-count") for place in range(10)]
    played = [by_hand(case) for case in cases[:right_ones]]
    played += [by_hand(case, (1, _FREE_COUNT, 2)) for case in cases[right_ones : right_ones + wrong_ones]]
    rule = judged(*played, hidden={"free-count": hidden})[1]["free-count"]

    assert (rule.points, rule.max_points) == points


def scores(
    found: Iterable[CaseFindings], cases: Iterable[Case], hidden: dict[str, int] | None
) -> tuple[RuleScore, ...]:
    """What the rules earn when these cases are all that was run."""
    kept = list(found)
    seen = diagnosed_alone(kept, lab()).first_cause
    rule = seen.rule if seen is not None else None
    return rule_scores(kept, lab().rubric, tuple(cases), builds=True, diagnosed=rule, hidden=hidden)


@pytest.mark.parametrize("mistake", [*list(MISTAKES)[::6], ""])
def test_what_is_earned_is_certain(mistake: str) -> None:
    """The whole grading gives each rule as much or more, and nothing fails that costs nothing."""
    attempt = attempted(changed(MISTAKES[mistake]) if mistake else right(), *every_case())
    cases = [case for case in every_case() if case.visibility is Visibility.PUBLIC]
    found = [one for one in attempt.case_findings if one.comparison.case.visibility is Visibility.PUBLIC]
    known = scores(found, cases, weights(lab().rubric, every_case()))

    for mine, whole in zip(known, scores(attempt.case_findings, every_case(), None), strict=True):
        assert mine.points <= whole.points
        assert mine.max_points <= whole.max_points
        assert (mine.points == mine.max_points) == (mine.passed == mine.cases)
    assert (
        sum(one.max_points for one in known) == grading_plan(Settings(lab=lab().name, public_only=True)).max_score < 100
    )


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


def test_the_whole_grading_says_nothing_of_a_part() -> None:
    """Nor does a grading of all cases of a lab that hides none."""
    record = pipeline.grade(SAMPLES / _SOME[0], lab(), [first_case()], GradingOptions(seed=1, memory_checker=False))

    assert all("public part" not in render(record, View()) for render in FORMATS.values())


def test_records_of_before_are_read() -> None:
    """They are of whole gradings; so are runs whose settings know nothing of parts, or name an option that has gone."""
    record = pipeline.grade(SAMPLES / _SOME[0], lab(), [first_case()], GradingOptions(seed=1, memory_checker=False))
    old = json.loads(to_json(record))
    del old["public_only"]
    old["instructions"] = 681_109
    settings = json.dumps({"lab": "paged_kv", "case": "*", "seed": None, "allowed": [], "instructions": True})

    assert from_json(json.dumps(old)) == record
    assert settings_of(
        Run(lab="paged_kv", folder="", settings=settings, fingerprint="", judged="", max_score=1)
    ) == Settings(lab="paged_kv")


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


def test_no_case_follows_from_a_seed() -> None:
    """A seed makes the words in the pools only: who knows it, knows no operation of a hidden case."""
    one, other = (select_cases(lab(), seed=seed).cases for seed in (1, 2))

    assert [case.trace.operations for case in one] == [case.trace.operations for case in other]
    assert all(a.trace.settings["seed"] != b.trace.settings["seed"] for a, b in zip(one, other, strict=True))
