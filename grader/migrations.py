"""The store's tables, as the steps by which they came to be. A step that was released is never changed again.

They may use `packed`, the function of that name.
"""

from __future__ import annotations

import zlib

__all__ = ["MIGRATIONS", "packed", "unpacked"]


def packed(text: str) -> bytes:
    """As a store keeps a record."""
    return zlib.compress(text.encode())


def unpacked(data: bytes) -> str:
    """What was packed."""
    return zlib.decompress(data).decode()


_FIRST = (
    """
    CREATE TABLE runs (
        id          INTEGER PRIMARY KEY AUTOINCREMENT,
        identity    TEXT NOT NULL UNIQUE,               -- a hash of all that is in it: nothing is there twice
        lab         TEXT NOT NULL,
        folder      TEXT NOT NULL,
        settings    TEXT NOT NULL,                      -- JSON
        fingerprint TEXT NOT NULL,                      -- of cases, rubric, grader and tools
        max_score   INTEGER NOT NULL,
        beside      INTEGER REFERENCES runs (id),       -- the run that this one regrades
        started     TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE sources (                              -- what was handed in, once
        id          TEXT PRIMARY KEY,
        content     BLOB NOT NULL,
        headers     TEXT NOT NULL,                      -- JSON: texts by their names, as Latin-1
        trouble     TEXT NOT NULL                       -- why there is no file to grade
    )
    """,
    """
    CREATE TABLE records (                              -- what came of it, by everything that it depends on
        key         TEXT PRIMARY KEY,
        json        TEXT NOT NULL,                      -- before overrides; its submission is in `results`
        verdict     TEXT NOT NULL,
        score       INTEGER NOT NULL,
        max_score   INTEGER NOT NULL,
        rule        TEXT,                               -- of the diagnosis
        graded      TEXT NOT NULL
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
        trouble     TEXT NOT NULL,                      -- why it could not be graded
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
)

_WHO_IS_MISSING = (
    """
    CREATE TABLE missing (                              -- in the roster, but nothing was handed in
        run         INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        student     TEXT NOT NULL,                      -- JSON
        PRIMARY KEY (run, student)
    ) WITHOUT ROWID
    """,
)

_WHO_IS_WHO = (
    "ALTER TABLE runs ADD COLUMN roster TEXT NOT NULL DEFAULT ''",  # JSON; empty: none was given
)

_RECORDS_ARE_PACKED = (
    "ALTER TABLE records RENAME COLUMN json TO packed",  # zlib: a tenth of the JSON
    "UPDATE records SET packed = packed(packed)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_FIRST, _WHO_IS_MISSING, _WHO_IS_WHO, _RECORDS_ARE_PACKED)
"""A store says by PRAGMA user_version how many of these it has behind it."""
