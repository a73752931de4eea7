"""One SQLite file that several processes may use at once, and its locks. The file stays intact if a process is killed.

The lock for one grading covers one byte of a file next to the store. The kernel releases it however its holder ends.
All batches share a lock on one more byte, so that no process removes what a batch is going to use.
"""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, get_args, get_origin, get_type_hints

from grader.core.errors import StoreError, StoreFailure

T = TypeVar("T")

DAMAGE = (ValueError, TypeError, AttributeError, LookupError, zlib.error)
"""The exceptions that reading a damaged value may raise."""

VERSION = 7
"""PRAGMA user_version of a store with these tables. A store with another version is refused."""
TABLES = (
    """
    CREATE TABLE runs (
        id          INTEGER PRIMARY KEY AUTOINCREMENT,
        identity    TEXT NOT NULL UNIQUE,               -- a hash of the whole row: no run is there twice
        lab         TEXT NOT NULL,
        folder      TEXT NOT NULL,
        settings    TEXT NOT NULL,                      -- JSON
        fingerprint TEXT NOT NULL,                      -- of cases, rubric, grader and tools
        judged      TEXT NOT NULL,                      -- the same without points, titles and places of rules
        max_score   INTEGER NOT NULL,
        beside      INTEGER REFERENCES runs (id),       -- the run that this one regrades
        started     TEXT NOT NULL,
        roster      TEXT NOT NULL DEFAULT ''            -- JSON; empty: none was given
    )
    """,
    """
    CREATE TABLE sources (                              -- each submitted source once
        id          TEXT PRIMARY KEY,
        content     BLOB NOT NULL,                      -- zlib
        headers     TEXT NOT NULL,                      -- zlib of JSON: texts by their names, as Latin-1
        failure     TEXT NOT NULL                       -- why there is no file to grade
    )
    """,
    """
    CREATE TABLE records (                              -- results, by everything that they depend on
        key         TEXT PRIMARY KEY,
        packed      TEXT NOT NULL,                      -- zlib of JSON; without overrides and submission
        verdict     TEXT NOT NULL,
        score       INTEGER NOT NULL,
        max_score   INTEGER NOT NULL,
        rule        TEXT,                               -- of the first cause
        graded      TEXT NOT NULL,
        complete    INTEGER NOT NULL,
        public_only INTEGER NOT NULL,
        points      TEXT NOT NULL,                      -- JSON: rule: [points, points at most]
        counted     TEXT NOT NULL,                      -- JSON: what counts for each rule, and its points now
        checksum    INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE results (
        run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        submission  TEXT NOT NULL,
        students    TEXT NOT NULL,                      -- JSON
        notes       TEXT NOT NULL,                      -- JSON
        source      TEXT REFERENCES sources (id),       -- NULL: it could not be read
        key         TEXT NOT NULL,                      -- graded as soon as `records` has it
        failure     TEXT NOT NULL,                      -- why it could not be graded
        PRIMARY KEY (run, submission)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX results_key ON results (key)",
    """
    CREATE TABLE overrides (
        run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        submission  TEXT NOT NULL,
        rule        TEXT NOT NULL,
        points      INTEGER NOT NULL,
        reason      TEXT NOT NULL,
        by          TEXT NOT NULL,
        PRIMARY KEY (run, submission, rule)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE current (                              -- the run that counts
        lab         TEXT NOT NULL,
        folder      TEXT NOT NULL,
        run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        PRIMARY KEY (lab, folder)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE missing (                              -- in the roster, without a submission
        run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        student     TEXT NOT NULL,                      -- JSON
        PRIMARY KEY (run, student)
    ) WITHOUT ROWID
    """,
)
LATER_TABLES = {
    "given_up": """
    CREATE {kind} IF NOT EXISTS given_up (              -- gradings that broke twice
        key         TEXT PRIMARY KEY,
        reason      TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    "kept": """
    CREATE {kind} IF NOT EXISTS kept (                  -- results of submissions that an earlier run took in
        run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        submission  TEXT NOT NULL,
        since       INTEGER NOT NULL,                   -- that run, which may be removed
        PRIMARY KEY (run, submission)
    ) WITHOUT ROWID
    """,
    "mended": """
    CREATE {kind} IF NOT EXISTS mended (                -- how far submissions are from right
        key         TEXT PRIMARY KEY,                   -- that of the record
        seconds     INTEGER NOT NULL,                   -- how long a change was looked for
        mending     TEXT NOT NULL                       -- JSON
    ) WITHOUT ROWID
    """,
}
"""Tables that were added later. An older store gets them when it is opened. Older graders ignore these tables."""
_OURS = 0x67726164  # "grad": identifies the grader's files
_PATIENCE = 60.0
_REMEDIES = {
    "SQLITE_FULL": "the disk is full: make room there",
    "SQLITE_IOERR": "the disk cannot be read or written (a quota, a limit of file size, a defect?): fix that",
    "SQLITE_READONLY": "no permission to write to it or to its folder: change that",
    "SQLITE_CANTOPEN": "it cannot be opened: does it exist, and is its folder readable and writable?",
    "SQLITE_BUSY": f"another process has locked it for {_PATIENCE:.0f} s: wait until it ends",
    "SQLITE_CORRUPT": "the file is damaged: save what can be read, `sqlite3 FILE .recover | sqlite3 NEW`, and use NEW",
    "SQLITE_NOTADB": "the file is damaged: its beginning is no longer that of a database",
}
_IN_USE = 1 << 48


def packed(text: str | bytes) -> bytes:
    """Compress a record or a submitted source for the store: a record shrinks to a tenth of its JSON."""
    return zlib.compress(text.encode() if isinstance(text, str) else text)


def unpacked(data: bytes) -> str:
    """Return the text that was packed. Raises `zlib.error` and `ValueError` for other bytes."""
    return zlib.decompress(data).decode()


def checked(kind: Callable[..., T], values: Mapping[str, object]) -> T:
    """Return the data class with these values. Raises one of `DAMAGE` if a value is missing or of another type."""
    types = _types(kind)
    wrong = [name for name, value in values.items() if not _is_of(types[name], value)]
    if wrong:
        raise TypeError(f"the {wrong[0]} of {kind.__name__} is {values[wrong[0]]!r}")
    return kind(**values)


@cache
def _types(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_of(hint: Any, value: object) -> bool:
    if get_origin(hint) is not tuple:
        return isinstance(value, hint)
    return isinstance(value, tuple) and all(isinstance(item, get_args(hint)[0]) for item in value)


class Database:
    """A connection to the file of a store. Every failure of the file is a `StoreFailure` that names the file."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.path = path
        self._connection = connection
        self._files = {file: identity for file in _files(path) if (identity := _identity(file)) is not None}

    def row(self, query: str, *values: object) -> sqlite3.Row | None:
        """Return the first row, or None if there is no row."""
        with _legible_errors():
            row: sqlite3.Row | None = self._connection.execute(query, values).fetchone()
        return row

    def rows(self, query: str, *values: object) -> Iterator[sqlite3.Row]:
        """Yield the rows of the result one by one: together they may be large."""
        with _legible_errors():
            for row in self._connection.execute(query, values):  # noqa: UP028 - see below
                yield row  # `yield from` would close the cursor too, which fails once the connection is closed

    def change(self, statement: str, *values: object) -> None:
        """Execute a statement that writes."""
        self.check()
        with _legible_errors():
            self._connection.execute(statement, values)

    def change_all(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        """Execute a statement that writes, once for each of these rows."""
        self.check()
        with _legible_errors():
            self._connection.executemany(statement, rows)

    def check(self) -> None:
        """Raise `StoreFailure` if the open file is no longer the file at its path."""
        lost = [file for file, then in self._files.items() if _identity(file) != then]
        if lost:
            raise StoreFailure(
                f"{lost[0]}: somebody removed or replaced it while it was used. What was graded since then is lost; "
                "put the store back if you can, and start the same command again"
            )

    @contextlib.contextmanager
    def reading(self, what: str, remedy: str) -> Iterator[None]:
        """Raise `StoreFailure` with the remedy if the block finds damaged values. `what` names these values."""
        try:
            yield
        except DAMAGE as error:
            raise StoreFailure(f"{self.path}: {what} is damaged; {remedy}") from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything that the block writes, or nothing. No other process writes at the same time."""
        with _transaction(self._connection):
            yield
        self.check()


@contextlib.contextmanager
def opened(path: Path, *, create: bool = False, read_only: bool = False) -> Iterator[Database]:
    """Open a store; unless `read_only`, add missing tables. Raises `StoreError` if this fails, later `StoreFailure`."""
    if not create and not path.is_file():
        raise StoreError(f"{path}: there is no such store; `grade batch FOLDER --store {path}` makes one")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: there is no folder {path.parent}")
    with contextlib.ExitStack() as stack:
        try:
            with _legible_errors():
                connection = stack.enter_context(_to_read(path) if read_only else _to_write(path))
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{path}: it cannot be used as a store: {_reason(error)}") from None
        try:
            yield Database(connection, path)
        except sqlite3.Error as error:
            goes_on = "" if read_only else ". Finished results are kept; the same command continues from there"
            raise StoreFailure(f"{path}: {_reason(error)}{goes_on}") from error


@contextlib.contextmanager
def _legible_errors() -> Iterator[None]:
    """Raise SQLite's error even if its message quotes bytes of a damaged file that are not UTF-8.

    Python cannot decode such a message and raises `UnicodeDecodeError` instead of the error.
    """
    try:
        yield
    except UnicodeDecodeError as undecoded:
        error = sqlite3.DatabaseError(_text(undecoded.object))
        error.sqlite_errorname = "SQLITE_CORRUPT"
        raise error from None


def _text(data: bytes) -> str:
    """Decode text of a file in which any byte may be damaged. The checksum shows the damage."""
    return data.decode(errors="backslashreplace")


@contextlib.contextmanager
def _to_write(path: Path) -> Iterator[sqlite3.Connection]:
    path.touch(mode=0o600)  # it contains names and hidden cases: only its owner may read it
    with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)) as connection:
        connection.row_factory, connection.text_factory = sqlite3.Row, _text
        _check(connection, path)
        _in_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")  # finished results survive a power cut too
        connection.execute("PRAGMA foreign_keys = ON")
        _make_tables(connection)
        for table in LATER_TABLES.values():
            connection.execute(table.format(kind="TABLE"))
        yield connection


@contextlib.contextmanager
def _to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store without changing any file, also in a folder that is not writable."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if _files(path)[1].exists():  # others use the store or were killed: without its -wal file it is incomplete
            raise
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True, isolation_level=None)
    with contextlib.closing(connection):
        connection.row_factory, connection.text_factory = sqlite3.Row, _text
        _check(connection, path)
        for name, table in LATER_TABLES.items():
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)).fetchone() is None:
                connection.execute(table.format(kind="TEMP TABLE"))  # in memory: the file is not changed
        yield connection


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back already, as on a full disk
            connection.execute("ROLLBACK")
        raise


def _files(path: Path) -> tuple[Path, ...]:
    return path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode, which identify a file whatever its name; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _reason(error: sqlite3.Error | OSError) -> str:
    """Return what went wrong, and what to do."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    name = getattr(error, "sqlite_errorname", "")
    fitting = [remedy for known, remedy in _REMEDIES.items() if name.startswith(known)]
    return f"{error}; {fitting[0]}" if fitting else str(error)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    # read first, because a new file gets tables and mark in one transaction
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    owner, version = (_pragma(connection, name) for name in ("application_id", "user_version"))
    if owner != _OURS and tables:
        raise StoreError(f"{path}: it is a database of something else; write --store with the name of another file")
    if tables and version != VERSION:
        raise StoreError(
            f"{path}: another version of the grader made it (tables {version}, this one has {VERSION}); write --store "
            "with the name of another file, or use that grader"
        )


def _in_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode, for readers and a writer at once; retry, because the switch does not wait for others."""
    for _ in range(100):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            time.sleep(0.1)
        else:
            return


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make all tables of a new file, or none."""
    if _pragma(connection, "user_version") == VERSION:
        return
    with _transaction(connection):
        if _pragma(connection, "user_version") == VERSION:  # another process has made them meanwhile
            return
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_OURS}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


class RunLocks:
    """Locks on gradings, by key: while a process has a lock, no other process does the same grading."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def take(self, key: str) -> bool:
        """Take the lock of the key. Return whether this process has the lock now; False if another process has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except OSError:
            return False
        return True

    def give_back(self, key: str) -> None:
        """Release the lock of the key, so that another process may take it."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _place(key))


@contextlib.contextmanager
def run_locks(store: Path, *, alone: bool = False) -> Iterator[RunLocks]:
    """Yield the locks on the gradings of this store. All are released at the end.

    Waits while another process has locked the store `alone`. With `alone`, raises `StoreError` if another process uses
    the store.
    """
    with store.with_name(f"{store.name}-claims").open("a+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH, 1, _IN_USE)
        except BlockingIOError:
            raise StoreError(f"{store}: a batch is using it; wait until it ends") from None
        yield RunLocks(file)


def _place(key: str) -> int:
    """Return the place of the byte that locks a key, never `_IN_USE`. Keys with the same byte share one lock."""
    return int(key[:12], 16)
