"""The store: every record of every run in one SQLite file. Nothing in it is overwritten, except by `--again`.

A record is stored once, under a key of everything that it depends on (`GradingPlan`). A run lists who submitted what,
and the key under which the record is or will be stored. So an unchanged submission is graded already when its run
begins, a killed batch continues where it was, and two batches at once do no work twice. A checksum shows whether a row
is damaged. A damaged record counts as not graded, and the same command makes it again.

The values that tables show are also stored in columns next to the record: a gradebook of 5,000 rows took 132 s of CPU
time when it was read from records of 250 kB each.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from grader.assignment.source import Source
from grader.classroom.database import Database, checked, opened, packed, unpacked
from grader.classroom.stored_result import Entry, Result, StoredRecord
from grader.core.errors import UsageError
from grader.core.record import Override, Record, Student

_ANEW = "use an intact copy of the file, or grade the class again: `grade batch FOLDER --store` NEW FILE"
_FIELDS = tuple(field.name for field in fields(StoredRecord))
_COLUMNS = ", ".join((*_FIELDS, "checksum"))
_UNUSED = "WHERE key NOT IN (SELECT key FROM results WHERE run NOT IN (SELECT value FROM json_each(?)))"
_RECORDS, _GIVEN_UP, _MENDED = (f"FROM {table} {_UNUSED}" for table in ("records", "given_up", "mended"))
_SOURCES = (
    "FROM sources WHERE id NOT IN (SELECT source FROM results "
    "WHERE source IS NOT NULL AND run NOT IN (SELECT value FROM json_each(?)))"
)
_RECORD_BYTES = "coalesce(sum(length(packed) + length(points)), 0)"
_SOURCE_BYTES = "coalesce(sum(length(content) + length(headers)), 0)"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One grading of a class, as a line of `grade runs`."""

    id: int = 0
    lab: str
    folder: str
    settings: str
    """`grader.assignment.lab.Settings`, as JSON."""
    fingerprint: str
    judged: str
    """See `GradingPlan.judged`. Records of another run with the same value can be rescored for this run."""
    max_score: int
    beside: int | None = None
    roster: str = ""
    """The `Roster` as JSON; "" without a roster."""
    started: str = ""


@contextlib.contextmanager
def open_store(path: Path, *, create: bool = False, read_only: bool = False) -> Iterator[Store]:
    """Open the store at `path`. Raises `StoreError` for a file that is no store; methods raise `StoreFailure`."""
    with opened(path, create=create, read_only=read_only) as database:
        yield Store(database)


class Store:
    """Access to a store through one connection."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def add_sources(self, sources: Iterable[tuple[str, Source]]) -> None:
        """Store sources by their ids, for later regrades. Damaged rows are replaced."""
        rows = (
            (
                source_id,
                packed(source.content),
                packed(json.dumps({name: text.decode("latin-1") for name, text in source.own_headers.items()})),
                source.finding.message if source.finding is not None else "",
            )
            for source_id, source in sources
        )
        with self.database.transaction():
            self.database.change_all(
                "INSERT INTO sources VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "content = excluded.content, headers = excluded.headers, failure = excluded.failure "
                "WHERE (content, headers, failure) IS NOT (excluded.content, excluded.headers, excluded.failure)",
                rows,
            )

    def source(self, source_id: str) -> tuple[bytes, dict[str, bytes], str]:
        """Return content, headers, and why there is no file ("" if there is one). Raises `StoreFailure` for damage."""
        row = self.database.row("SELECT content, headers, failure FROM sources WHERE id = ?", source_id)
        with self.database.reading("what was submitted", "`grade batch FOLDER` puts it back"):
            values = dict(row or {})
            headers = {name: text.encode("latin-1") for name, text in json.loads(unpacked(values["headers"])).items()}
            return zlib.decompress(values["content"]), headers, values["failure"]

    def add_run(
        self,
        run: Run,
        entries: Sequence[Entry],
        overrides: Collection[Override] = (),
        missing: Collection[Student] = (),
    ) -> Run:
        """Return the run with exactly these values: a new run, or the run that exists already."""
        rows = [
            (entry.submission, _dumped(entry.students), json.dumps(entry.notes), entry.source, entry.key)
            for entry in entries
        ]
        absent = sorted({_dumped(student) for student in missing})
        earlier = [(entry.submission, entry.since) for entry in entries if entry.since is not None]
        parts = [
            run.lab,
            run.folder,
            run.settings,
            run.fingerprint,
            rows,
            absent,
            *([run.roster] if run.roster else []),
            *([earlier] if earlier else []),
        ]
        decided = sorted(
            (override.submission, override.rule, override.points, override.reason, override.by)
            for override in overrides
        )
        identity = hashlib.sha256(json.dumps([parts, decided]).encode()).hexdigest()
        with self.database.transaction():
            row = self.database.row("SELECT * FROM runs WHERE identity = ?", identity)
            if row is None:
                values = asdict(run) | {"id": None, "identity": identity, "started": _now()}
                self._insert("runs", values)
                row = self.database.row("SELECT * FROM runs WHERE id = last_insert_rowid()")
                assert row is not None
                of_run = [(row["id"], *values) for values in decided]
                self.database.change_all("INSERT INTO overrides VALUES (?, ?, ?, ?, ?, ?)", of_run)
                self.database.change_all(
                    "INSERT INTO missing VALUES (?, ?)", [(row["id"], student) for student in absent]
                )
                self.database.change_all(
                    "INSERT INTO kept VALUES (?, ?, ?)", [(row["id"], *values) for values in earlier]
                )
            self._fill_results(
                row["id"], [(*values, entry.failure) for values, entry in zip(rows, entries, strict=True)]
            )
        return self._run(row)

    def _fill_results(self, run: int, rows: Sequence[tuple[object, ...]]) -> None:
        """Write the results of a run. If the run has rows already, keep equal rows and replace damaged ones."""
        names = {row["submission"] for row in self.database.rows("SELECT submission FROM results WHERE run = ?", run)}
        if names - {row[0] for row in rows}:
            self.database.change("DELETE FROM results WHERE run = ?", run)
        self.database.change_all(
            "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, submission) DO UPDATE SET "
            "students = excluded.students, notes = excluded.notes, source = excluded.source, key = excluded.key "
            "WHERE (students, notes, source, key) IS NOT "
            "(excluded.students, excluded.notes, excluded.source, excluded.key)",
            [(run, *row) for row in rows],
        )

    def _insert(self, table: str, values: Mapping[str, object], *, replace: bool = False) -> None:
        names, places = ", ".join(values), ", ".join("?" * len(values))
        verb = "INSERT OR REPLACE" if replace else "INSERT"
        self.database.change(f"{verb} INTO {table} ({names}) VALUES ({places})", *values.values())

    def add_record(self, stored: StoredRecord, *, again: bool = False) -> None:
        """Store a record. An existing record stays, unless it is damaged or the submission was graded `again`."""
        self.add_records([stored], again=again)

    def add_records(self, records: Iterable[StoredRecord], *, again: bool = False) -> None:
        """Store all these records or none, as `add_record` does."""
        with self.database.transaction():
            for stored in records:
                if again or self.record(stored.key) is None:
                    values = {name: getattr(stored, name) for name in _FIELDS}
                    values |= {"checksum": stored.checksum, "graded": _now()}
                    self._insert("records", values, replace=True)
                self.database.change("DELETE FROM given_up WHERE key = ?", stored.key)

    def add_failure(self, run: Run, key: str, failure: str) -> None:
        """Store why the submissions with that key could not be graded; "" removes the reason."""
        self.database.change("UPDATE results SET failure = ? WHERE run = ? AND key = ?", failure, run.id, key)

    def give_up(self, key: str, reason: str) -> None:
        """Store that a person has to look at the submissions with that key, unless a record is stored for the key."""
        self.database.change(
            "INSERT OR REPLACE INTO given_up SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM records WHERE key = ?)",
            key,
            reason,
            key,
        )

    def is_given_up(self, key: str) -> bool:
        """Whether a person has to look at the submissions with that key."""
        return self.database.row("SELECT 1 FROM given_up WHERE key = ?", key) is not None

    def add_mending(self, key: str, seconds: int, mending: str) -> None:
        """Store the result of a search for a change that mends a submission, as JSON; the search took `seconds`."""
        self._insert("mended", {"key": key, "seconds": seconds, "mending": mending}, replace=True)

    def mending(self, key: str) -> tuple[int, str] | None:
        """Return the seconds and the result of the stored search for a change; None without one."""
        row = self.database.row("SELECT seconds, mending FROM mended WHERE key = ?", key)
        return (row["seconds"], row["mending"]) if row is not None else None

    def record(self, key: str) -> StoredRecord | None:
        """Return the record stored for that key; None if there is no record or it is damaged."""
        row = self.database.row(f"SELECT {_COLUMNS} FROM records WHERE key = ?", key)  # noqa: S608 - our names
        return StoredRecord.of_row(row) if row is not None else None

    def pending(self, run: Run, *, again: Collection[str] = ()) -> list[tuple[str, str]]:
        """Return (key, source id) of each result that has no record, a damaged record, or a key in `again`."""
        rows = self.database.rows(
            f"SELECT {_COLUMNS}, source FROM results LEFT JOIN records USING (key) "  # noqa: S608 - our names
            "WHERE run = ? AND source IS NOT NULL ORDER BY submission",
            run.id,
        )
        wanted = (
            (row["key"], row["source"]) for row in rows if row["key"] in again or StoredRecord.of_row(row) is None
        )
        return list(dict.fromkeys(wanted))

    def make_current(self, run: Run) -> None:
        """Make this run the one that counts for its class."""
        self.database.change("INSERT OR REPLACE INTO current VALUES (?, ?, ?)", run.lab, run.folder, run.id)

    def current(self, lab: str, folder: str) -> Run | None:
        """Return the run that counts for a class (`make_current`), or None."""
        row = self.database.row(
            "SELECT runs.* FROM runs JOIN current ON run = id WHERE current.lab = ? AND current.folder = ?", lab, folder
        )
        return self._run(row) if row is not None else None

    def known(self, lab: str, folder: str) -> Run | None:
        """Return the run that counts for a class, or its newest run if no run counts yet; None for an unknown class."""
        runs = [run for run in self.all_current() if (run.lab, run.folder) == (lab, folder)]
        return runs[0] if runs else None

    def all_current(self) -> list[Run]:
        """Return the run that counts for each class, or its newest run if no run counts yet."""
        rows = self.database.rows(
            "SELECT coalesce((SELECT run FROM current c WHERE c.lab = r.lab AND c.folder = r.folder), max(id)) AS id "
            "FROM runs r GROUP BY lab, folder ORDER BY 1"
        )
        return [self.run(row["id"]) for row in rows]

    def runs(self) -> list[Run]:
        """Return all runs, the oldest first."""
        return [self._run(row) for row in self.database.rows("SELECT * FROM runs ORDER BY id")]

    def run(self, number: int) -> Run:
        """Return the run with that number. Raises `UsageError` if there is no such run."""
        row = self.database.row("SELECT * FROM runs WHERE id = ?", number)
        if row is None:
            raise UsageError(f"there is no run {number} in this store; `grade runs` lists them")
        return self._run(row)

    def _run(self, row: sqlite3.Row) -> Run:
        with self.database.reading(f"run {row[0]}", _ANEW):
            return checked(Run, {field.name: row[field.name] for field in fields(Run)})

    def overrides(self, run: Run) -> tuple[Override, ...]:
        """Return the overrides of this run."""
        rows = self.database.rows("SELECT submission, rule, points, reason, by FROM overrides WHERE run = ?", run.id)
        with self.database.reading(f"what people decided for run {run.id}", _ANEW):
            return tuple(checked(Override, dict(row)) for row in rows)

    def missing(self, run: Run) -> tuple[Student, ...]:
        """Return the students of the roster who submitted nothing."""
        rows = self.database.rows("SELECT * FROM missing WHERE run = ?", run.id)
        with self.database.reading(f"who submitted nothing in run {run.id}", _ANEW):
            return tuple(checked(Student, json.loads(row["student"])) for row in rows)

    def results(self, run: Run, submission: str | None = None) -> Iterator[Result]:
        """Yield the results of a run one by one, sorted by name: all together may be large."""
        condition = "" if submission is None else "AND submission = ?"
        values = (run.id,) if submission is None else (run.id, submission)
        decided: dict[str, list[Override]] = {}
        for override in self.overrides(run):
            decided.setdefault(override.submission, []).append(override)
        for row in self.database.rows(
            f"SELECT submission, students, notes, source, failure, since, reason, {_COLUMNS} "  # noqa: S608 - our words
            "FROM results LEFT JOIN kept USING (run, submission) "
            "LEFT JOIN records USING (key) LEFT JOIN given_up USING (key) "
            f"WHERE run = ? {condition} ORDER BY submission",
            *values,
        ):
            entry, stored = Entry.of_row(row), StoredRecord.of_row(row)
            if entry is None or (stored is None and row["packed"] is not None):
                why = f"its row in {self.database.path} is damaged; the same `grade batch` grades it again"
                entry = replace(entry or Entry(submission=str(row["submission"]), source=None, key=""), failure=why)
            yield Result(
                entry=entry,
                lab=run.lab,
                full=run.max_score,
                overrides=tuple(decided.get(entry.submission, ())),
                stored=stored if entry.key else None,
            )


def _dumped(value: Student | Sequence[Student]) -> str:
    return json.dumps(asdict(value) if isinstance(value, Student) else [asdict(student) for student in value])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """What `prune` would remove from a store."""

    records: int
    sources: int
    size: int
    """The size of the removed rows, in bytes."""


def runs_to_remove(store: Store, named: Collection[int], keep: int | None) -> tuple[Run, ...]:
    """Return the runs with these numbers, and all runs of each class except its last `keep`.

    A run that counts always stays. Raises `UsageError` for the number of a run that counts or does not exist.
    """
    counting = {run.id for run in store.all_current()}
    for number in named:
        run = store.run(number)
        if number in counting:
            raise UsageError(
                f"run {number} is the one that counts for {run.folder}, so it stays; to let another one count: "
                f"grade diff {number} OTHER --apply"
            )
    classes: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in store.runs():
        classes[run.lab, run.folder].append(run)
    old = {run.id for runs in classes.values() if keep is not None for run in runs[: max(0, len(runs) - keep)]}
    return tuple(run for run in store.runs() if run.id in old - counting or run.id in named)


def prunable(store: Store, runs: Collection[Run]) -> Prunable:
    """Return what `prune` would remove with these runs."""
    numbers = _numbers(runs)
    records, of_records = store.database.row(f"SELECT count(*), {_RECORD_BYTES} {_RECORDS}", numbers) or (0, 0)
    sources, of_sources = store.database.row(f"SELECT count(*), {_SOURCE_BYTES} {_SOURCES}", numbers) or (0, 0)
    return Prunable(records=records, sources=sources, size=of_records + of_sources)


def prune(store: Store, runs: Collection[Run]) -> None:
    """Remove these runs, all or none, and free their disk space. No other process may be using the store."""
    numbers = _numbers(runs)
    with store.database.transaction():
        for statement in (
            "UPDATE runs SET beside = NULL WHERE beside IN (SELECT value FROM json_each(?))",
            f"DELETE {_RECORDS}",
            f"DELETE {_GIVEN_UP}",
            f"DELETE {_MENDED}",
            "DELETE FROM results WHERE run IN (SELECT value FROM json_each(?))",
            f"DELETE {_SOURCES}",
            "DELETE FROM runs WHERE id IN (SELECT value FROM json_each(?))",
        ):
            store.database.change(statement, numbers)
    store.database.change("VACUUM")
    for _ in store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)"):
        pass


def _numbers(runs: Collection[Run]) -> str:
    return json.dumps([run.id for run in runs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The differences between two runs for one submission. A value that one of the runs lacks is None."""

    submission: str
    verdict: tuple[str | None, str | None]
    score: tuple[int | None, int | None]
    rules: dict[str, tuple[int | None, int | None]]
    """The points (old, new) of each rule whose points differ."""
    cases: dict[str, tuple[str | None, str | None]]
    """The ends (old, new) of each case that ended differently; a key is a case with its rule in brackets."""


def changes(store: Store, old: Run, new: Run) -> Iterator[Change]:
    """Yield the change of each submission whose verdict or points differ, sorted by name."""
    before, after = _by_name(store, old), _by_name(store, new)
    for name in sorted({*before, *after}):
        if before.get(name) == after.get(name):
            continue
        was, now = (next(store.results(run, name), None) for run in (old, new))
        change = change_between(name, was, now)
        if change is not None:
            yield change


def change_between(submission: str, old: Result | None, new: Result | None) -> Change | None:
    """Return the change of one submission; None if neither verdict nor points differ."""
    was, now = (result.brief if result is not None else None for result in (old, new))
    verdict = was.verdict if was else None, now.verdict if now else None
    score = was.score if was else None, now.score if now else None
    rules = _differing(_points(was), _points(now))
    if verdict[0] == verdict[1] and score[0] == score[1] and not rules:
        return None
    stored = [result.stored.packed if result is not None and result.stored else None for result in (old, new)]
    cases = {}
    if stored[0] != stored[1]:  # if equal, the record was only rescored
        cases = _differing(*(_ends(result.record if result is not None else None) for result in (old, new)))
    return Change(submission=submission, verdict=verdict, score=score, rules=rules, cases=cases)


def _by_name(store: Store, run: Run) -> dict[str, tuple[object, ...]]:
    """Map each submission to the values that determine its record. Equal values in two runs mean equal records."""
    return {
        result.name: (result.entry.key, result.is_graded, result.entry.failure, result.overrides)
        for result in store.results(run)
    }


def _points(record: Record | None) -> dict[str, int]:
    return {rule.rule: rule.points for rule in record.rules} if record is not None else {}


def _ends(record: Record | None) -> dict[str, str]:
    """Return in words how each case ended. A case can pass for its rule and still have lost memory."""
    return {
        f"{outcome.case} ({outcome.rule})": "passes, but " * (outcome.passed and not outcome.clean) + outcome.verdict
        for outcome in (record.outcomes if record is not None else ())
    }


def _differing(old: Mapping[str, T], new: Mapping[str, T]) -> dict[str, tuple[T | None, T | None]]:
    """Return the entries that differ, in the order of `old`."""
    return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}
