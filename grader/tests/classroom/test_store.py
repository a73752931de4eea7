"""One file holds all runs: nothing doubled, nothing lost, whoever writes at the same time and however it ends."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grader.classroom import roster as rosters
from grader.classroom.batch import earlier_entries
from grader.classroom.database import run_locks
from grader.classroom.discover import Submitted
from grader.classroom.roster import Roster
from grader.classroom.store import Run, Store, open_store
from grader.classroom.stored_result import Entry, StoredRecord
from grader.core.errors import StoreError, UsageError
from grader.core.record import Student
from grader.core.verdict import Verdict
from grader.tests.support.handmade import outcome, record_of

JANE = Student(name="Jane Doe", sid="7", email="jane@example.edu")
RUN = Run(lab="paged_kv", folder="/class", settings="{}", fingerprint="f", judged="j", max_score=6)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty one."""
    with open_store(tmp_path / "grades.sqlite", create=True) as made:
        yield made


def entry(name: str, key: str = "", **changes: object) -> Entry:
    """A submission that was not read from anywhere."""
    return Entry(submission=name, source=None, key=key or f"key of {name}", **changes)  # type: ignore[arg-type]


def kept(key: str) -> StoredRecord:
    """What is kept of a record that has one of six points."""
    return StoredRecord.of(key, record_of(outcome("append/one")))


def test_a_store_that_is_none_is_refused(tmp_path: Path) -> None:
    """Another program's database, any other file, one of another grader, none at all: nothing is written to them."""
    other, text, newer, older = (tmp_path / f"{name}.sqlite" for name in ("other", "text", "newer", "older"))
    with contextlib.closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    text.write_text("certainly no database, but long enough to be taken for one" * 20, encoding="utf-8")
    for path, version in ((newer, 99), (older, 1)):
        with open_store(path, create=True):
            pass
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(f"PRAGMA user_version = {version}")

    for path, said in (
        (other, "something else"),
        (text, "not a database"),
        (newer, "another version of the grader"),
        (older, "another version of the grader"),
        (tmp_path / "none.sqlite", "no such store"),
        (tmp_path / "nowhere" / "new.sqlite", "no folder"),
    ):
        before = path.read_bytes() if path.exists() else b""
        with pytest.raises(StoreError, match=said), open_store(path, create=said == "no folder"):
            pass
        assert (path.read_bytes() if path.exists() else b"") == before


def test_nobody_else_may_read_a_store(tmp_path: Path, store: Store) -> None:
    """Students' names and what hidden cases do are in it, and student code runs on the same machine."""
    store.add_run(RUN, [])

    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("grades.sqlite*")} == {0o600}


def test_a_record_is_kept_once_and_never_replaced(store: Store) -> None:
    """Two that handed in the same file share it; a run of before has the record that it had."""
    run = store.add_run(RUN, [entry("jane", "k"), entry("joe", "k"), entry("jim")])
    store.add_record(kept("k"))
    store.add_record(replace(kept("k"), verdict="accepted", score=6))

    assert [(one.name, one.score) for one in store.results(run)] == [("jane", 1), ("jim", None), ("joe", 1)]
    assert [one.record.submission.name for one in store.results(run, "joe")] == ["joe"]


def test_what_has_no_score_says_so(store: Store) -> None:
    """Not graded yet, or not to be graded: a record of our own fault that gives and takes no point."""
    run = store.add_run(RUN, [entry("jane")])
    (waiting,) = store.results(run)
    store.add_failure(run, "key of jane", "no time")
    (failed,) = store.results(run)

    assert (waiting.verdict, failed.verdict) == (None, Verdict.JUDGE_ERROR)
    assert (failed.record.score, failed.record.max_score, failed.record.complete) == (None, 6, False)
    assert failed.record.findings[0].message == "no time"


def test_the_run_that_counts_is_chosen_by_class(store: Store) -> None:
    """The one that was made current; of a class that has none, the newest."""
    first, second = (store.add_run(RUN, [entry(name)]) for name in ("jane", "joe"))
    other = store.add_run(
        Run(lab="paged_kv", folder="/other", settings="{}", fingerprint="f", judged="j", max_score=6), []
    )

    assert [run.id for run in store.all_current()] == [second.id, other.id]
    store.make_current(first)
    assert store.current("paged_kv", "/class") == first
    assert [run.id for run in store.all_current()] == [first.id, other.id]
    with pytest.raises(UsageError, match="no run 9"):
        store.run(9)


def test_a_run_keeps_its_roster(store: Store) -> None:
    """Row by row; one with another roster is another run, and one without is the same as ever."""
    roster = Roster(rows=(("jane", JANE), ("jane", Student(name="Joe"))), by_ending=True)
    run = store.add_run(replace(RUN, roster=roster.to_json()), [])

    assert rosters.from_json(store.run(run.id).roster) == roster
    assert store.add_run(replace(RUN, roster=roster.to_json()), []) == run
    assert rosters.from_json(store.add_run(RUN, []).roster) is None


def test_several_may_write_at_once(tmp_path: Path) -> None:
    """Four writers make one run and two hundred records between them, each once."""
    path = tmp_path / "grades.sqlite"
    keys = [f"key {number}" for number in range(50)]
    failed: list[BaseException] = []

    def write(mine: int) -> None:
        try:
            with open_store(path, create=True) as store:
                store.add_run(RUN, [entry(key, key) for key in keys])
                for key in keys:
                    store.add_record(kept(key))
                    store.add_record(kept(f"{key} of {mine}"))
        except BaseException as error:  # noqa: BLE001 - a thread's error would be lost
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    with open_store(path) as store:
        (run,) = store.runs()
        assert all(result.is_graded for result in store.results(run))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM records").fetchone()[0] == 5 * len(keys)
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_a_transaction_is_all_or_nothing(store: Store) -> None:
    """An error in its midst leaves the store as it was."""
    with pytest.raises(sqlite3.IntegrityError):
        store.add_run(RUN, [entry("jane"), replace(entry("joe"), source="one that is not there")])

    assert store.runs() == []


def test_a_claim_is_held_by_one_process_and_ends_with_it(tmp_path: Path) -> None:
    """The kernel gives it back when its holder is killed."""
    import signal
    import subprocess
    import sys

    path, key = tmp_path / "grades.sqlite", "ab" * 32
    program = """import sys, time
from pathlib import Path
from grader.classroom.database import run_locks
from grader.classroom.discover import Submitted
with run_locks(Path(sys.argv[1])) as held:
    print(held.take(sys.argv[2]), flush=True)
    time.sleep(60)"""
    holder = subprocess.Popen([sys.executable, "-c", program, str(path), key], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    with run_locks(path) as ours:
        assert not ours.take(key)
        assert ours.take("cd" * 32)
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        assert ours.take(key)


def test_a_student_is_known_by_sid_or_email_from_run_to_run(store: Store) -> None:
    """The first export lacked the sid: the newer hand-in replaces the older one all the same."""
    ann = Student(name="Ann", email="a@x")
    ben = Student(name="Ben", sid="2")
    run = store.add_run(RUN, [entry("submission_99", students=(ann, ben))])
    newer = Submitted(name="submission_100", students=(Student(name="Ann", sid="1", email="a@x"),))
    (left,) = earlier_entries(store, run, [newer], None)

    assert (left.submission, left.students, left.since) == ("submission_99", (ben,), run.id)
