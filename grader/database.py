"""One SQLite file that several processes may use at once, and that a kill at any moment leaves whole."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from grader.errors import StoreError
from grader.migrations import MIGRATIONS, packed

__all__ = ["opened", "transaction"]

_OURS = 0x67726164  # "grad": marks our files among those of others
_PATIENCE = 60.0


@contextlib.contextmanager
def opened(path: Path, *, create: bool) -> Iterator[sqlite3.Connection]:
    """A connection to our file, its tables those of today. Raises `StoreError` when it is none of ours."""
    if not create and not path.is_file():
        raise StoreError(f"{path}: there is no such store; `grade batch FOLDER --store {path}` makes one")
    if not path.parent.is_dir():
        raise StoreError(f"{path}: there is no folder {path.parent}")
    with contextlib.ExitStack() as stack:
        try:
            path.touch(mode=0o600)  # names and hidden cases are in it: nobody else reads it
            connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            stack.callback(connection.close)
            connection.row_factory = sqlite3.Row
            _check(connection, path)
            _in_wal(connection)
            connection.execute("PRAGMA synchronous = FULL")  # what is finished outlives a power cut too
            connection.execute("PRAGMA foreign_keys = ON")
            _migrate(connection)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{path}: it cannot be used as a store: {error}") from None
        yield connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of what is written inside, or nothing; nobody else writes meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, path: Path) -> None:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]  # first: they come with our mark
    owner, version = (_pragma(connection, name) for name in ("application_id", "user_version"))
    if owner != _OURS and tables:
        raise StoreError(f"{path}: it is a database of something else; write --store with the name of another file")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path}: a newer grader made it (version {version}, we know {len(MIGRATIONS)}); update this one"
        )


def _in_wal(connection: sqlite3.Connection) -> None:
    """Readers and a writer at once. The switch itself does not wait for others, so we do."""
    for _ in range(100):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            time.sleep(0.1)
        else:
            return


def _migrate(connection: sqlite3.Connection) -> None:
    """Take the steps that the file has not behind it; all, or none."""
    if _pragma(connection, "user_version") == len(MIGRATIONS):
        return
    connection.create_function("packed", 1, packed, deterministic=True)
    with transaction(connection):
        for step in MIGRATIONS[_pragma(connection, "user_version") :]:  # asked again: another may have been quicker
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_OURS}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
