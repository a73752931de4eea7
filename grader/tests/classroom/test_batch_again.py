"""What is kept is graded anew where somebody asks for it, and what was handed in and is damaged stops no other."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from grader.classroom import batch
from grader.classroom.store import Store, open_store
from grader.classroom.workers import ProcessPool
from grader.cli.batch import _named
from grader.core.errors import DriverError, StoreFailure, UsageError
from grader.tests.classroom.test_batch import graded, planned
from grader.tests.support.command import grade
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.odd_classes import NAME, put
from grader.tests.support.pretended import stuck


@pytest.fixture(autouse=True)
def before_all_else(counter: None) -> None:
    """Every test grades with the counter."""


def test_names_and_patterns_choose_and_all_that_fit_none_are_said() -> None:
    """With the one that is near; a name that looks like a pattern is a name first."""
    names = ["jane", "joe", "team_1", "team_2", "team_[1]"]

    assert _named(["jane", "team_?", "team_[1]"], names) == {"jane", "team_1", "team_2", "team_[1]"}
    with pytest.raises(UsageError) as error:
        _named(["jnae", "x*", "joe"], names)
    said = str(error.value).splitlines()
    assert said[0] == "--again jnae: there is no such submission (did you mean jane?)"
    assert (len(said), said[1].startswith("--again x*: there is no such submission")) == (2, True)


@pytest.fixture
def here() -> Iterator[None]:
    """Commands grade counters in this process."""
    with counters_in_process():
        yield


@pytest.mark.usefixtures("here")
def test_what_is_kept_is_graded_again_on_demand(tmp_path: Path) -> None:
    """Only that; what machine trouble made of it is gone, and both are said. Without the option nothing is graded."""
    for name, source in {"right_one": RIGHT, "nothing": "", "below": BELOW}.items():
        put(tmp_path / "in" / name / NAME, source.encode())
    call = partial(grade, "batch", "in", "--lab", "counter", "--jobs", "2", cwd=tmp_path)
    assert call().code == 1
    path = tmp_path / "grades.sqlite"
    with open_store(path) as store:
        right = next(store.results(store.run(1), "right_one")).stored
        wrong = next(store.results(store.run(1), "nothing")).stored
        assert right is not None
        assert wrong is not None
        lost = replace(wrong, key=right.key)
        store.add_record(lost, again=True)

    unknown = call("--again", "right_oen")
    assert (unknown.code, "did you mean right_one?" in unknown.err) == (2, True)
    assert "right_one" not in call().err
    anew = call("--again", "right*", "--again", "below")
    assert "run 1: 3 submissions, 1 of them graded already" in anew.err
    assert f"right_one: {right.score} points, 0 points before" in anew.err
    assert "below: " in anew.err
    assert anew.err.count("points, as before") == 1
    with open_store(path, read_only=True) as store:
        again = next(store.results(store.run(1), "right_one"))
        assert (again.score, again.record.score) == (right.score, right.score)


def test_a_record_stays_until_there_is_a_new_one(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be graded again has what it had."""
    run = planned(store, folder)
    graded(store, folder, run)
    before = [one.stored for one in store.results(run)]
    keys = {one.entry.key for one in store.results(run)}

    def broken(*_: object, **__: object) -> None:
        raise DriverError("no time")

    monkeypatch.setattr("grader.pipeline.grade", broken)
    told = graded(store, folder, run, again=keys)

    assert [one.failure for one in told] == ["its grading broke twice: no time"] * 3
    assert [one.stored for one in store.results(run)] == before


def test_what_was_handed_in_and_is_damaged_stops_no_other(tmp_path: Path, store: Store, folder: Path) -> None:
    """It has no score and a reason; to hand it in once more mends that."""
    run = planned(store, folder)
    with contextlib.closing(sqlite3.connect(tmp_path / "grades.sqlite")) as connection, connection:
        one = next(store.results(run, "right")).entry.source
        connection.execute("UPDATE sources SET content = x'00' WHERE id = ?", (one,))
    connection.close()
    graded(store, folder, run)
    failures = {one.name: one.entry.failure for one in store.results(run) if not one.is_graded}
    assert list(failures) == ["right"]
    assert "`grade batch FOLDER` puts it back" in failures["right"]

    graded(store, folder, planned(store, folder))
    assert all(one.is_graded for one in store.results(run))


def test_a_store_that_is_gone_ends_a_batch(
    tmp_path: Path, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon, though nothing ends that could be kept."""
    (folder / "unreadable.sh").write_text(f"stuck {tmp_path / 'mark'}", encoding="utf-8")
    monkeypatch.setattr(batch, "grade", stuck)
    run = planned(store, folder)
    (tmp_path / "grades.sqlite").unlink()
    with pytest.raises(StoreFailure, match=r"grades\.sqlite: somebody removed or replaced it"):
        graded(store, folder, run, partial(ProcessPool, 2))
