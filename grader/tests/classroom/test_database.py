"""A store that is damaged, full, removed or used by others: what is lost is said, and no record is wrong."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grader.assignment.source import Source
from grader.classroom.database import opened
from grader.classroom.store import open_store
from grader.classroom.stored_result import Entry, StoredRecord
from grader.core.errors import StoreError, StoreFailure
from grader.core.record import Submission
from grader.core.verdict import Verdict
from grader.report import GRADEBOOKS, LINE_BY_LINE
from grader.tests.classroom.test_store import JANE, RUN, entry, kept
from grader.tests.support.command import ROOT, command, environment, grade
from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.damaged_stores import COMMANDS, ends_on_damaged, graded_class
from grader.tests.support.handmade import outcome, record_of
from grader.tests.support.injected import INJECTIONS, filled

_COUNT = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """That of a class which was graded with a roster and overrides."""
    with counters_in_process():
        yield graded_class(tmp_path_factory.mktemp("counters"))


def test_no_command_breaks_on_a_damaged_store(store: Path) -> None:
    """SQLite quotes damaged bytes in its messages, and Python cannot always decode them."""
    ends = list(ends_on_damaged(store, _COUNT))
    broken = [(end.number, end.words, end.err) for end in ends if "the grader broke" in end.err]

    assert len(ends) == _COUNT * len(COMMANDS)
    assert broken == []
    assert {end.code for end in ends} == {0, 1, 2, 3}
    assert [end for end in ends if end.code in (2, 3) and not (end.err + end.out).strip()] == []


def test_a_message_with_damaged_bytes_is_shown_with_them(tmp_path: Path) -> None:
    """The name of a table in the file's schema is no UTF-8."""
    path = tmp_path / "grades.sqlite"
    with opened(path, create=True):
        pass
    content = path.read_bytes()
    path.write_bytes(content.replace(b"tablemissingmissing", b"tablem\xffssingmissing"))
    expected = r"malformed database schema \(.*\\xff.*\); the file is damaged: save what"
    with pytest.raises(StoreError, match=expected), opened(path, read_only=True):
        pass


_SOURCE = Source(name="llm_memory.c", content=b"int x;\n" * 1000, own_headers={"a.h": b"\xe4"}, finding=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a run of three, two of whom are graded."""
    made = tmp_path / "grades.sqlite"
    with open_store(made, create=True) as store:
        store.add_sources([("s", _SOURCE)])
        store.add_run(RUN, entries())
        for name in ("ann", "bob"):
            store.add_record(kept(f"key of {name}"))
    return made


def entries() -> list[Entry]:
    """Those of the run."""
    return [replace(entry(name, students=(JANE,), notes=("n",)), source="s") for name in ("ann", "bob", "cem")]


def changed(path: Path, statement: str, *values: object) -> None:
    """As a bad disk would."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)
    connection.close()


_DAMAGED = [
    ("records", "packed", b"certainly no record"),
    ("records", "packed", "text"),
    ("records", "score", 6),
    ("records", "score", "six"),
    ("records", "verdict", "accepted"),
    ("records", "points", '{"address": [6, 6]}'),
    ("records", "points", b"\xff"),
    ("records", "complete", "no"),
    ("records", "checksum", 7),
    ("results", "students", "[{"),
    ("results", "students", '[{"who": 1}]'),
    ("results", "notes", b"\xff"),
    ("results", "notes", "7"),
]


@pytest.mark.parametrize(("table", "column", "value"), _DAMAGED)
def test_a_damaged_row_counts_as_not_graded_and_is_made_anew(
    path: Path, table: str, column: str, value: object
) -> None:
    """It names submission and file; the others are as they were."""
    name = "key = 'key of ann'"
    changed(path, f"UPDATE {table} SET {column} = ? WHERE {name}", value)
    with open_store(path, read_only=True) as store:
        ann, bob, cem = store.results(store.run(1))

        assert (ann.is_graded, ann.verdict, ann.record.score) == (False, Verdict.JUDGE_ERROR, None)
        assert f"{path} is damaged" in ann.entry.failure
        assert (bob.score, cem.is_graded, cem.entry.failure) == (1, False, "")
    with open_store(path) as store:
        run = store.add_run(RUN, entries())
        assert run.id == 1
        for key, _ in store.pending(run):
            store.add_record(kept(key))
        assert [(one.score, one.entry.students, one.entry.notes) for one in store.results(run)] == [
            (1, (JANE,), ("n",))
        ] * 3


def test_commands_tell_of_a_damaged_row(path: Path) -> None:
    """It is one that has no score."""
    changed(path, "UPDATE records SET score = 5 WHERE key = 'key of ann'")
    changed(path, "UPDATE results SET students = '[{' WHERE submission = 'bob'")
    shown = grade("show", "ann", "--store", path)
    assert (shown.code, f"ann: its row in {path} is damaged" in shown.err) == (3, True)
    assert (grade("runs", "--store", path).code, grade("diff", "1", "1", "--store", path).code) == (0, 0)
    refused = grade("export", "--store", path)
    assert (refused.code, "without a score yet: 3: ann, bob, cem" in refused.err) == (2, True)


def test_a_store_that_is_only_read_is_not_changed(path: Path) -> None:
    """Not even where one may; and it can be read where one may not."""
    before = path.read_bytes(), path.stat().st_mtime_ns
    with open_store(path, read_only=True) as store:
        with pytest.raises(StoreFailure, match="readonly"), opened(path, read_only=True) as read:
            read.change("DELETE FROM records")
        assert len(list(store.results(store.run(1)))) == 3
    for words in (("runs",), ("show", "ann"), ("export", "--partial"), ("diff", "1", "1")):
        assert grade(*words, "--store", path).code == 0

    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("which", ["", "-wal", "-shm"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_store_that_is_gone_is_no_silent_loss(path: Path, which: str, how: str) -> None:
    """The next word to it names it."""
    file = path.with_name(f"{path.name}{which}")
    with open_store(path) as store:
        store.add_record(kept("before"))
        content = file.read_bytes()
        file.unlink()
        if how == "replaced":
            file.write_bytes(content)
        with pytest.raises(StoreFailure, match=f"grades.sqlite{which}: somebody removed or replaced it"):
            store.database.check()
        with pytest.raises(StoreFailure, match="somebody removed or replaced it"):
            store.add_record(kept("after"))


def test_a_file_that_is_no_database_any_more_is_named(path: Path) -> None:
    """With what sqlite3 itself can do for it."""
    with open_store(path) as store:
        for number in range(200):
            store.add_record(kept(f"more {number}"))
    content = bytearray(path.read_bytes())
    content[8192:40960] = b"\xa5" * 32768
    path.write_bytes(content)
    for words in (("runs",), ("show", "ann"), ("export",)):
        said = grade(*words, "--store", path)
        assert (said.code, f"{path}: " in said.err, ".recover" in said.err) == (3, True, True), said.err


@pytest.mark.parametrize("name", sorted(GRADEBOOKS.keys() - LINE_BY_LINE))
def test_tables_need_no_more_than_what_stands_beside_a_record(tmp_path: Path, name: str) -> None:
    """They are the same of whole records."""
    with open_store(tmp_path / "grades.sqlite", create=True) as store:
        records = {f"k{number}": filled(text) for number, text in enumerate(INJECTIONS.values())}
        run = store.add_run(RUN, [entry(f"jane {key}", key, students=(JANE,)) for key in records])
        for key, record in records.items():
            store.add_record(StoredRecord.of(key, replace(record, lab=RUN.lab, overrides=())))
        results = list(store.results(run))

    assert all(result.is_graded for result in results)
    assert GRADEBOOKS[name]([one.brief for one in results]) == GRADEBOOKS[name]([one.record for one in results])


@pytest.mark.parametrize("large", ["students/s0.html", "students/s1.html", "class/index.html"])
def test_a_full_disk_while_reports_are_written_is_one_message(tmp_path: Path, large: str) -> None:
    """Whichever page does not fit. A limit of file size stands for the disk, because anybody may set one."""
    path, folder, limit = tmp_path / "grades.sqlite", tmp_path / "reports", 100_000
    text = Submission(name="", source_file="solution.c", source=("x" * 2000,) * 100)
    many = record_of(*(outcome(f"append/{number}") for number in range(900)))
    records = {"s0.html": record_of(submission=text), "s1.html": record_of(submission=text), "index.html": many}
    with open_store(path, create=True) as store:
        store.add_run(RUN, [entry(f"s{number}") for number in range(3)])
        for number in range(3):
            is_large = Path(large).name in (f"s{number}.html", "index.html")
            content = records[Path(large).name] if is_large else record_of()
            store.add_record(StoredRecord.of(f"key of s{number}", content))
    limited = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    words = command("export", "--format", "html", "--output", folder, "--store", path)
    done = subprocess.run(
        [sys.executable, "-c", f"{limited}; os.execv(sys.argv[1], sys.argv[1:])", *words],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    expected = ("could not be written: File too large. Make room there, or write somewhere else", "(This costs nobody")

    assert (done.returncode, done.stderr.count("\n")) == (3, 2), done.stderr
    assert f"grade: {folder / large} {expected[0]}\n{expected[1]}" in done.stderr
    assert sorted(page.name for page in (folder / "students").iterdir()) == [
        name for name in ("s0.html", "s1.html", "s2.html") if f"students/{name}" < large or large == "class/index.html"
    ]
