"""The store: every record of every run in one SQLite file. Nothing in it is overwritten.

A record is kept once, by everything that it depends on (`grader.asked`). A run lists what was handed in by whom, and
under which key its record is, or will be. So an unchanged submission is graded already when its run begins, a killed
batch goes on where it was, and two of them at once cannot double anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from grader.collect import Source
from grader.database import opened, transaction
from grader.errors import UsageError
from grader.record import Override, Student
from grader.result import Entry, Kept, Result

__all__ = ["Run", "Store", "open_store"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One grading of a class, as a line of `grade runs`."""

    id: int = 0
    lab: str
    folder: str
    settings: str
    """JSON, see `grader.asked.Settings`."""
    fingerprint: str
    max_score: int
    beside: int | None = None
    roster: str = ""
    """JSON, see `grader.roster`; empty: none was given."""
    started: str = ""


@contextlib.contextmanager
def open_store(path: Path, *, create: bool = False) -> Iterator[Store]:
    """The store in that file. Raises `StoreError`."""
    with opened(path, create=create) as connection:
        yield Store(connection)


class Store:
    """What is kept, through one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add_sources(self, sources: Iterable[tuple[str, Source]]) -> None:
        """Keep what was handed in, by its id, for later regrades."""
        rows = (
            (
                source_id,
                source.content,
                json.dumps({name: text.decode("latin-1") for name, text in source.own_headers.items()}),
                source.finding.message if source.finding is not None else "",
            )
            for source_id, source in sources
        )
        with transaction(self._connection):
            self._connection.executemany("INSERT OR IGNORE INTO sources VALUES (?, ?, ?, ?)", rows)

    def source(self, source_id: str) -> tuple[bytes, dict[str, bytes], str]:
        """What was handed in: content, headers, and why there is no file."""
        row = self._row("SELECT content, headers, trouble FROM sources WHERE id = ?", source_id)
        assert row is not None
        headers = {name: text.encode("latin-1") for name, text in json.loads(row["headers"]).items()}
        return row["content"], headers, row["trouble"]

    def add_run(
        self,
        run: Run,
        entries: Sequence[Entry],
        overrides: Collection[Override] = (),
        missing: Collection[Student] = (),
    ) -> Run:
        """The run that is exactly this: a new one, or the one that is there already."""
        rows = [
            (entry.submission, _dumped(entry.students), json.dumps(entry.notes), entry.source, entry.key)
            for entry in entries
        ]
        absent = sorted({_dumped(student) for student in missing})
        parts = [
            run.lab,
            run.folder,
            run.settings,
            run.fingerprint,
            rows,
            absent,
            *([run.roster] if run.roster else []),
        ]
        decided = sorted((one.submission, one.rule, one.points, one.reason, one.by) for one in overrides)
        identity = hashlib.sha256(json.dumps([parts, decided]).encode()).hexdigest()
        with transaction(self._connection):
            row = self._row("SELECT * FROM runs WHERE identity = ?", identity)
            if row is None:
                self._insert_run(run, identity)
                number = self._connection.execute("SELECT last_insert_rowid()").fetchone()[0]
                self._fill("results", [(number, *row, e.trouble) for row, e in zip(rows, entries, strict=True)])
                self._fill("overrides", [(number, *one) for one in decided])
                self._fill("missing", [(number, student) for student in absent])
                row = self._row("SELECT * FROM runs WHERE id = ?", number)
        return _run(row)

    def _insert_run(self, run: Run, identity: str) -> None:
        values = asdict(run) | {"identity": identity, "started": _now()}
        del values["id"]
        names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
        self._connection.execute(f"INSERT INTO runs ({names}) VALUES ({places})", values)  # noqa: S608 - our names

    def _fill(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            places = ", ".join("?" * len(rows[0]))
            self._connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - our names

    def add_record(self, kept: Kept) -> None:
        """Keep a record; one that is there already stays."""
        self._connection.execute(
            "INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
            (kept.key, kept.packed, kept.verdict, kept.score, kept.max_score, kept.rule, _now()),
        )

    def add_trouble(self, run: Run, key: str, trouble: str) -> None:
        """Say why the submissions with that key could not be graded; "" takes it back."""
        self._connection.execute("UPDATE results SET trouble = ? WHERE run = ? AND key = ?", (trouble, run.id, key))

    def record(self, key: str) -> Kept | None:
        """What is kept for that key."""
        row = self._row("SELECT key, packed, verdict, score, max_score, rule FROM records WHERE key = ?", key)
        return _kept(row) if row is not None else None

    def pending(self, run: Run) -> list[tuple[str, str]]:
        """Keys that no record has yet, each once, with the ids of their sources."""
        return [
            (row["key"], row["source"])
            for row in self._rows(
                "SELECT DISTINCT key, source FROM results LEFT JOIN records USING (key) "
                "WHERE run = ? AND source IS NOT NULL AND packed IS NULL ORDER BY submission",
                run.id,
            )
        ]

    def make_current(self, run: Run) -> None:
        """From now on it is the one that counts."""
        self._connection.execute("INSERT OR REPLACE INTO current VALUES (?, ?, ?)", (run.lab, run.folder, run.id))

    def current(self, lab: str, folder: str) -> Run | None:
        """The run that counts for a class."""
        row = self._row(
            "SELECT runs.* FROM runs JOIN current ON run = id WHERE current.lab = ? AND current.folder = ?", lab, folder
        )
        return _run(row) if row is not None else None

    def known(self, lab: str, folder: str) -> Run | None:
        """The run that counts for a class; while none does, its newest one."""
        found = [run for run in self.all_current() if (run.lab, run.folder) == (lab, folder)]
        return found[0] if found else None

    def all_current(self) -> list[Run]:
        """Those that count, of all classes; of a class that has none its newest."""
        rows = self._rows(
            "SELECT coalesce((SELECT run FROM current c WHERE c.lab = r.lab AND c.folder = r.folder), max(id)) AS id "
            "FROM runs r GROUP BY lab, folder ORDER BY 1"
        )
        return [self.run(row["id"]) for row in rows]

    def runs(self) -> list[Run]:
        """All of them, the oldest first."""
        return [_run(row) for row in self._rows("SELECT * FROM runs ORDER BY id")]

    def run(self, number: int) -> Run:
        """The one with that number. Raises `UsageError` when there is none."""
        row = self._row("SELECT * FROM runs WHERE id = ?", number)
        if row is None:
            raise UsageError(f"there is no run {number} in this store; `grade runs` lists them")
        return _run(row)

    def overrides(self, run: Run) -> tuple[Override, ...]:
        """What people decided, for this run."""
        rows = self._rows("SELECT submission, rule, points, reason, by FROM overrides WHERE run = ?", run.id)
        return tuple(Override(**dict(row)) for row in rows)

    def missing(self, run: Run) -> tuple[Student, ...]:
        """Those of the roster who handed in nothing."""
        return tuple(
            Student(**json.loads(row["student"])) for row in self._rows("SELECT * FROM missing WHERE run = ?", run.id)
        )

    def results(self, run: Run, submission: str | None = None) -> Iterator[Result]:
        """Those of a run, in the order of their names, one by one: together they may be large."""
        chosen = "" if submission is None else "AND submission = ?"
        values = (run.id,) if submission is None else (run.id, submission)
        decided: dict[str, list[Override]] = {}
        for override in self.overrides(run):
            decided.setdefault(override.submission, []).append(override)
        for row in self._rows(
            "SELECT submission, students, notes, source, results.key, trouble, packed, verdict, score, max_score, rule "  # noqa: S608 - our words
            f"FROM results LEFT JOIN records USING (key) WHERE run = ? {chosen} ORDER BY submission",
            *values,
        ):
            name = row["submission"]
            yield Result(
                entry=Entry(
                    submission=name,
                    students=tuple(Student(**one) for one in json.loads(row["students"])),
                    notes=tuple(json.loads(row["notes"])),
                    source=row["source"],
                    key=row["key"],
                    trouble=row["trouble"],
                ),
                lab=run.lab,
                full=run.max_score,
                overrides=tuple(decided.get(name, ())),
                kept=_kept(row) if row["packed"] is not None else None,
            )

    def _row(self, query: str, *values: object) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._connection.execute(query, values).fetchone()
        return found

    def _rows(self, query: str, *values: object) -> Iterator[sqlite3.Row]:
        yield from self._connection.execute(query, values)


def _run(row: sqlite3.Row | None) -> Run:
    assert row is not None
    return Run(**{field.name: row[field.name] for field in fields(Run)})


def _kept(row: sqlite3.Row) -> Kept:
    return Kept(**{field.name: row[field.name] for field in fields(Kept)})


def _dumped(value: Student | Sequence[Student]) -> str:
    return json.dumps(asdict(value) if isinstance(value, Student) else [asdict(one) for one in value])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
