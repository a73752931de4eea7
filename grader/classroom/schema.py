"""The store's tables, and the format of records and sources in them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")

DAMAGE = (ValueError, TypeError, AttributeError, LookupError, zlib.error)
"""What reading a damaged value raises."""

VERSION = 6
"""PRAGMA user_version of a store with these tables. A store with another version is refused."""


def packed(text: str | bytes) -> bytes:
    """Compress a record or a submitted source as the store holds it: a tenth of the size of the JSON."""
    return zlib.compress(text.encode() if isinstance(text, str) else text)


def unpacked(data: bytes) -> str:
    """The text that was packed. Raises `zlib.error` and `ValueError` for other bytes."""
    return zlib.decompress(data).decode()


def checksum(record: bytes, *beside: str | int | None) -> int:
    """Return the checksum of a packed record and the columns beside it.

    Raises `TypeError` and `ValueError` for values of other types, which are damaged too.
    """
    return zlib.crc32(record, zlib.crc32(json.dumps(beside).encode()))


def checked(kind: Callable[..., T], values: Mapping[str, object]) -> T:
    """Return the data class with these values. Raises one of `DAMAGE` when a value is of another type, or missing."""
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


TABLES = (
    """
    CREATE TABLE runs (
        id          INTEGER PRIMARY KEY AUTOINCREMENT,
        identity    TEXT NOT NULL UNIQUE,               -- a hash of the whole row: no run is there twice
        lab         TEXT NOT NULL,
        folder      TEXT NOT NULL,
        settings    TEXT NOT NULL,                      -- JSON
        fingerprint TEXT NOT NULL,                      -- of cases, rubric, grader and tools
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

GIVEN_UP = """
    CREATE {kind} IF NOT EXISTS given_up (              -- gradings that broke twice
        key         TEXT PRIMARY KEY,
        reason      TEXT NOT NULL
    ) WITHOUT ROWID
"""
"""One more table. A store that was made before it existed gets it when it is opened; older graders ignore it."""
