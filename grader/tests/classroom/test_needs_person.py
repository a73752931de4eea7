"""A submission whose grading breaks twice needs a person: it is a row with the reason and no score; no other waits."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from grader.classroom import batch
from grader.classroom.store import Run, Store, open_store, prune
from grader.classroom.workers import LATE, Graded, ProcessPool
from grader.system.budget import MOST_SECONDS
from grader.tests.classroom.test_batch import graded, planned
from grader.tests.support.classes import until
from grader.tests.support.pretended import pretended, tries

_BROKE = "its grading broke twice: "


@pytest.fixture(autouse=True)
def before_all_else(counter: None) -> None:
    """Every test grades with the counter."""


@pytest.fixture(autouse=True)
def only_pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled, also in other processes."""
    monkeypatch.setattr(batch, "grade", pretended)


def hand_in(folder: Path, **sources: str) -> None:
    """A class of these; nothing else is left of the one that was there."""
    for path in folder.iterdir():
        path.unlink()
    for name, words in sources.items():
        (folder / f"{name}.sh").write_text(words, encoding="utf-8")


def failures(store: Store, run: Run) -> dict[str, tuple[str, bool]]:
    """Why some have no score, and whether that needs a person."""
    return {one.name: (one.entry.failure, one.needs_person) for one in store.results(run) if not one.is_graded}


def test_a_grading_that_does_not_end_twice_needs_a_person(tmp_path: Path, store: Store, folder: Path) -> None:
    """Its process is killed each time."""
    log = tmp_path / "log"
    hand_in(folder, stuck=f"stuck {log}", ann="right")
    run = planned(store, folder)
    with ProcessPool(1) as pool:
        (place,) = pool._places

        def look_at_the_clock() -> None:
            for number in (1, 2):
                until(lambda number=number: tries(log) == number, 120)  # type: ignore[misc]
                place.wait_less(MOST_SECONDS)

        thread = threading.Thread(target=look_at_the_clock)
        thread.start()
        graded(store, folder, run, lambda: nullcontext(pool))
        thread.join()

    assert failures(store, run) == {"stuck": (_BROKE + LATE, True)}


@pytest.mark.parametrize(
    "trouble",
    [("full", "no room"), ("tool", "no gcc"), ("disk", "No space left"), ("store", "no store")],
    ids=lambda one: one[0],
)
def test_trouble_of_the_whole_machine_needs_no_person(
    tmp_path: Path, store: Store, folder: Path, trouble: tuple[str, str]
) -> None:
    """However often: the same command tries it again."""
    how, why = trouble
    hand_in(folder, ann=f"{how} {tmp_path / 'log'} 3")
    run = planned(store, folder)
    for _ in range(3):
        graded(store, folder, run)
        ((said, needs_person),) = failures(store, run).values()
        assert (why in said, needs_person) == (True, False)
    graded(store, folder, run)

    assert failures(store, run) == {}
    assert tries(tmp_path / "log") == 4


class Interrupted(BaseException):
    """In the place of Ctrl-C."""


def test_a_batch_that_ends_after_the_first_time_leaves_it_to_the_next(
    tmp_path: Path, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It broke once only: it has a reason, needs no person yet, and is graded again."""
    log = tmp_path / "log"
    hand_in(folder, ann=f"raises {log}", bob="right")
    run = planned(store, folder)
    note = batch._OpenRun.note

    def ends(work: batch._OpenRun, broken: Graded) -> None:
        note(work, broken)
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(batch._OpenRun, "note", ends)
        with pytest.raises(Interrupted):
            graded(store, folder, run, window=1)
    assert failures(store, run)["ann"] == ("ValueError: boom", False)

    graded(store, folder, run)
    assert failures(store, run) == {"ann": (f"{_BROKE}ValueError: boom", True)}
    assert tries(log) == 3


def test_once_it_goes_well_nobody_needs_to_look(tmp_path: Path, store: Store, folder: Path) -> None:
    """What made it break may have been a trouble that the machine did not tell of."""
    log = tmp_path / "log"
    hand_in(folder, ann=f"raises {log} 4", bob=f"raises {log} 4")
    run = planned(store, folder)
    graded(store, folder, run)
    key = next(store.results(run, "ann")).entry.key
    assert (len(failures(store, run)), tries(log)) == (2, 2)

    for number in (3, 4):
        graded(store, folder, run)
        assert (len(failures(store, run)), tries(log)) == (2, number)
    graded(store, folder, run)
    assert (failures(store, run), store.is_given_up(key), tries(log)) == ({}, False, 5)


def test_a_later_run_knows_of_it(tmp_path: Path, store: Store, folder: Path) -> None:
    """By what was handed in, not by the run; pruning forgets what nobody refers to."""
    log = tmp_path / "log"
    hand_in(folder, ann=f"raises {log}")
    first = planned(store, folder)
    graded(store, folder, first)

    (folder / "bob.sh").write_text("right", encoding="utf-8")
    second = planned(store, folder)
    graded(store, folder, second)
    assert failures(store, second) == {"ann": (f"{_BROKE}ValueError: boom", True)}
    assert tries(log) == 3

    prune(store, [first])
    assert list(failures(store, second)) == ["ann"]
    prune(store, [second])
    assert store.database.row("SELECT count(*) FROM given_up")["count(*)"] == 0  # type: ignore[index]


def test_a_store_from_before_is_read_as_it_is_and_gets_the_table_when_it_is_used(
    tmp_path: Path, store: Store, folder: Path
) -> None:
    """Nothing is written by those who only read."""
    path = tmp_path / "grades.sqlite"
    hand_in(folder, ann=f"raises {tmp_path / 'log'}")
    run = planned(store, folder)
    store.database.change("DROP TABLE given_up")
    store.database.change("DROP TABLE kept")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with open_store(path, read_only=True) as old:
        assert [one.needs_person for one in old.results(run)] == [False]
    assert path.read_bytes() == before

    with open_store(path) as opened:
        graded(opened, folder, run)
        assert [one.needs_person for one in opened.results(run)] == [True]
