"""A regrade of points runs nothing: records are rescored, a preview stores nothing, and what changes comes first."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from grader.classroom import batch
from grader.classroom.store import Store, open_store
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.tests.support.command import Said, grade
from grader.tests.support.counter.lab import lab
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.counter_lab import UNREADABLE, counters_in_process
from grader.tests.support.odd_classes import NAME, put
from grader.tests.support.same_result import same_result

_CLASS = {"ada": RIGHT, "bob": BELOW, "eve": UNREADABLE, "tie/a": RIGHT, "tie/b": BELOW}
_OTHER = {"points  = 50": "points  = 20", "points  = 40": "points  = 70", "goes below 0": "goes below zero"}
_DECIDED = '[[override]]\nsubmission = "bob"\nrule = "below"\npoints = 30\nreason = "agreed"\nby = "Lee"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A class that was graded, and another rubric with other points."""
    shutil.copytree(lab().cases, tmp_path / "cases")
    for name, source in _CLASS.items():
        put(tmp_path / "in" / name / NAME, source.encode())
    text = (tmp_path / "cases" / "rubric.toml").read_text(encoding="utf-8")
    for old, new in _OTHER.items():
        text = text.replace(old, new)
    (tmp_path / "other.toml").write_text(text, encoding="utf-8")
    with counters_in_process(cases=tmp_path / "cases"):
        assert grade("batch", "in", "--lab", "counter", cwd=tmp_path).code == 3
    return tmp_path


def regrade(place: Path, *words: str) -> Said:
    """`grade regrade` by the rubric in the folder of cases; a grading would fail."""
    rubric = lab().read_rubric(place / "cases" / "rubric.toml")
    with (
        counters_in_process(cases=place / "cases", rubric=rubric),
        patch.object(batch, "grade", side_effect=AssertionError),
    ):
        return grade("regrade", *words, cwd=place)


def records(store: Store, number: int) -> dict[str, Record]:
    """The records of a run."""
    return {result.name: result.record for result in store.results(store.run(number))}


def test_other_points_need_no_grading(place: Path) -> None:
    """The records are those that a grading with these points makes, and are there for a later batch."""
    shutil.copy(place / "other.toml", place / "cases" / "rubric.toml")
    said = regrade(place)

    assert said.code == 3, said.err  # one submission still needs a person
    assert "since run 1 only points or what students see changed: its records are rescored" in said.err
    assert "run 2: 4 submissions, 3 of them graded already" in said.err
    with counters_in_process(cases=place / "cases", rubric=lab().read_rubric(place / "other.toml")):
        grade("batch", "in", "--lab", "counter", "--store", "anew.sqlite", cwd=place)
        again = grade("batch", "in", "--lab", "counter", cwd=place)
    assert "run 2: 4 submissions, 3 of them graded already" in again.err
    with open_store(place / "grades.sqlite") as store, open_store(place / "anew.sqlite") as anew:
        rescored, graded_anew, old = records(store, 2), records(anew, 1), records(store, 1)

        assert [result.stored.points for result in store.results(store.run(2)) if result.stored] == [
            result.stored.points for result in anew.results(anew.run(1)) if result.stored
        ]
    assert [name for name, record in rescored.items() if not same_result(record, graded_anew[name])] == []
    assert (old["bob"].score, rescored["bob"].score) == (60, 30)
    assert rescored["bob"].rules[-1].title == "the total never goes below zero"


def test_a_preview_stores_nothing(place: Path) -> None:
    """It says the same, and how to take these points."""
    before = (place / "grades.sqlite").read_bytes()
    said = regrade(place, "--rubric", "other.toml")
    same = regrade(place, "--rubric", "cases/rubric.toml")

    assert (said.code, same.code) == (1, 0)
    assert said.out.startswith("run 1 -> other.toml: 1 of 3 submissions change; 0 gain points, 1 lose points")
    assert "bob: 60 -> 30 points" in said.out
    assert "nothing was stored; to take these points: copy other.toml over the lab's rubric.toml" in said.err
    assert same.out.startswith("run 1 -> rubric.toml: 0 of 3 submissions change")
    assert (place / "grades.sqlite").read_bytes() == before


def test_a_preview_refuses_what_it_cannot_show(place: Path) -> None:
    """Rules that are judged in another way, mistakes in the rubric, and options that store something."""
    text = (place / "other.toml").read_text(encoding="utf-8")
    (place / "judging.toml").write_text(text.replace('"reply", "total"', '"total"', 1), encoding="utf-8")
    (place / "sum.toml").write_text(text.replace("points  = 70", "points  = 60"), encoding="utf-8")
    for words, said in (
        (("--rubric", "judging.toml"), "judging.toml: it judges in another way than the lab's rubric: counts; only"),
        (("--rubric", "sum.toml"), "sum.toml:1: the points of all rules sum to 90; they must sum to 100"),
        (("--rubric", "none.toml"), "none.toml:1: cannot be read"),
        (("--rubric", "other.toml", "--apply"), "it goes with none of --apply, --overrides and --roster"),
    ):
        done = regrade(place, *words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err, words

    case = place / "cases" / "basic" / "adds_all.toml"
    case.write_text(case.read_text(encoding="utf-8").replace("title ", "weight = 30\ntitle "), encoding="utf-8")
    assert "cases, grader or tools have changed since run 1" in regrade(place, "--rubric", "other.toml").err


def test_what_people_decided_stays(place: Path) -> None:
    """It counts instead of the points of its rule, by the old rubric and by the new one."""
    (place / "decided.toml").write_text(_DECIDED, encoding="utf-8")
    regrade(place, "--overrides", "decided.toml", "--apply")
    shutil.copy(place / "other.toml", place / "cases" / "rubric.toml")
    said = regrade(place)

    assert "bob: 90 -> 60 points" in said.out
    with open_store(place / "grades.sqlite") as store:
        assert [records(store, number)["bob"].score for number in (1, 2, 3)] == [60, 90, 60]
        assert records(store, 3)["bob"].verdict is Verdict.WRONG_ANSWER


def test_what_students_see_is_released_without_a_grading(place: Path) -> None:
    """Instructors see everything before, and the old run stays as it was."""
    rubric = place / "cases" / "rubric.toml"
    text = rubric.read_text(encoding="utf-8")
    rubric.write_text(f'feedback = "score"\n{text}', encoding="utf-8")
    assert "run 2 counts now" in regrade(place, "--apply").err
    before, whole = (grade("show", "bob", *words, cwd=place).out for words in ((), ("--instructor",)))
    release = '[[release]]\nfrom = 2020-01-01T00:00:00Z\nfeedback = "full"\n'
    rubric.write_text(f'feedback = "score"\n{text}\n{release}', encoding="utf-8")
    assert "run 3 counts now" in regrade(place, "--apply").err

    assert before == "bob: wrong answer, 60 of 100 points\n\n  Only the score is shown for this hand-in.\n"
    assert "below" in whole
    assert "Start here: the most likely cause" in grade("show", "bob", cwd=place).out
    assert grade("show", "bob", "--run", "2", cwd=place).out == before
    assert "feedback" in grade("show", "bob", "--run", "2", "--format", "json", cwd=place).out


def test_a_batch_takes_over_what_only_other_points_would_grade_again(place: Path) -> None:
    """As a regrade does; what was not there before is graded."""
    shutil.copy(place / "other.toml", place / "cases" / "rubric.toml")
    put(place / "in" / "zoe" / NAME, BELOW.replace("add", "add ").encode())
    with counters_in_process(cases=place / "cases", rubric=lab().read_rubric(place / "other.toml")):
        said = grade("batch", "in", "--lab", "counter", cwd=place)

    assert "since run 1 only points or what students see changed: its records are rescored" in said.err
    assert "run 2: 5 submissions, 3 of them graded already" in said.err
