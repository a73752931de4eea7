"""A store becomes smaller by what nobody refers to, and by runs that are named or old; never by what is in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grader.assignment.source import Source
from grader.classroom.database import run_locks
from grader.classroom.store import Run, Store, open_store, prune, runs_to_remove
from grader.core.errors import StoreError, UsageError
from grader.tests.classroom.test_store import RUN, entry, kept
from grader.tests.support.command import grade


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Four runs of a class, of which the second counts, and one of another class."""
    with open_store(tmp_path / "grades.sqlite", create=True) as made:
        source = Source(name="llm_memory.c", content=b"int x;\n" * 1000, own_headers={}, finding=None)
        made.add_sources((name, source) for name in ("s0", "s1", "s2", "s3", "nobody's"))
        for number in range(4):
            mine = replace(entry("jane", f"k{number}"), source=f"s{number}")
            run = made.add_run(replace(RUN, fingerprint=str(number)), [mine, entry("joe", "shared")])
            if number == 1:
                made.make_current(run)
        made.add_run(replace(RUN, folder="/other"), [entry("jim", "k9")])
        for key in ("k0", "k1", "k2", "k3", "k9", "shared", "nobody's"):
            made.add_record(kept(key))
            made.add_mending(key, 60, "{}")
        yield made


def left(store: Store) -> tuple[list[int], list[str], list[str]]:
    """Runs, records and sources. A change that mends a program has lines of it, so it stays as long as the record."""
    records, mended = (
        sorted(row[0] for row in store.database.rows(f"SELECT key FROM {table}")) for table in ("records", "mended")
    )
    assert mended == records
    return (
        [run.id for run in store.runs()],
        records,
        sorted(row[0] for row in store.database.rows("SELECT id FROM sources")),
    )


def numbers(runs: tuple[Run, ...]) -> list[int]:
    """Theirs."""
    return [run.id for run in runs]


def test_old_and_named_runs_go_but_for_the_one_that_counts(store: Store) -> None:
    """With what only they refer to; a run that regraded one of them stays."""
    beside = store.add_run(replace(RUN, fingerprint="9", beside=1), [entry("joe", "shared")])
    runs = runs_to_remove(store, [4], keep=2)
    prune(store, runs)

    assert numbers(runs) == [1, 3, 4]
    assert left(store) == ([2, 5, beside.id], ["k1", "k9", "shared"], ["s1"])
    assert store.run(beside.id).beside is None
    assert [one.score for one in store.results(store.run(2))] == [1, 1]
    with pytest.raises(UsageError, match="run 2 is the one that counts"):
        runs_to_remove(store, [2], keep=None)
    with pytest.raises(UsageError, match="no run 99"):
        runs_to_remove(store, [99], keep=None)


def test_nothing_is_taken_from_a_batch(tmp_path: Path, store: Store) -> None:
    """As long as it has not ended, wherever it is."""
    path = tmp_path / "grades.sqlite"
    program = "import sys\nfrom pathlib import Path\nfrom grader.classroom.database import run_locks\n"
    program += "with run_locks(Path(sys.argv[1])):\n    print('x', flush=True)\n    sys.stdin.readline()\n"
    import subprocess
    import sys

    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as batch:
        assert batch.stdout is not None
        batch.stdout.readline()
        with pytest.raises(StoreError, match="a batch is using it"), run_locks(path, alone=True):
            pass
        refused = grade("runs", "--prune", "--yes", "--store", path)
        batch.communicate(b"\n")

    assert (refused.code, "a batch is using it" in refused.err) == (2, True)
    with run_locks(path, alone=True):
        pass


def test_the_command_says_what_goes_and_asks(tmp_path: Path, store: Store) -> None:
    """Without an answer nothing goes."""
    path = tmp_path / "grades.sqlite"
    before = left(store)
    asked = grade("runs", "--prune", "--keep", "1", "--store", path)
    assert (asked.code, "to be removed: 2 runs 1 3, " in asked.err, "write --yes" in asked.err) == (2, True, True)
    assert left(store) == before
    done = grade("runs", "--prune", "--keep", "1", "--yes", "--store", path)
    assert (done.code, "removed; the file had" in done.err) == (0, True)
    assert numbers(tuple(store.runs())) == [2, 4, 5]
    assert "nothing" not in grade("runs", "--prune", "--yes", "--store", path).err
    alone = grade("runs", "--keep", "1", "--store", path)
    assert (alone.code, "write --prune too" in alone.err) == (2, True)
