"""The store's tables, as the steps by which they came to be. A step that was released is never changed again.

They may use `FUNCTIONS`, which say for ever what they say today.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

__all__ = ["FUNCTIONS", "MIGRATIONS", "NONE_FITS", "checksum", "packed", "points_in", "unpacked"]

NONE_FITS = -1
"""The checksum of a row that was damaged already when it got one."""


def packed(text: str | bytes) -> bytes:
    """As a store keeps a record, or what was handed in."""
    return zlib.compress(text.encode() if isinstance(text, str) else text)


def unpacked(data: bytes) -> str:
    """What was packed, of a text."""
    return zlib.decompress(data).decode()


def points_in(record: bytes) -> str:
    """Of each rule what a packed record says that it earned, and could earn, as JSON; "" of one that is damaged."""
    rules = _read(record).get("rules")
    return json.dumps({one["rule"]: [one["points"], one["max_points"]] for one in rules}) if rules is not None else ""


def told_in(record: bytes, name: str) -> int:
    """Whether a packed record says so."""
    return int(bool(_read(record).get(name, False)))


@lru_cache(maxsize=1)
def _read(record: bytes) -> dict[str, Any]:
    try:
        found = json.loads(unpacked(record))
    except (zlib.error, ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def checksum(record: bytes, *beside: str | int | None) -> int:
    """Of a packed record and what is kept beside it; `NONE_FITS` where that lacks the points.

    Raises `TypeError` and `ValueError` for values of other kinds, which are damaged too.
    """
    return zlib.crc32(record, zlib.crc32(json.dumps(beside).encode())) if "" not in beside else NONE_FITS


FUNCTIONS: Mapping[str, tuple[Callable[..., Any], int]] = {
    "packed": (packed, 1),
    "points_in": (points_in, 1),
    "told_in": (told_in, 2),
    "checksum": (checksum, -1),
}
"""With their numbers of arguments; -1: any."""


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

_POINTS_ARE_APART = (
    "ALTER TABLE records ADD COLUMN complete INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE records ADD COLUMN public_only INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE records ADD COLUMN points TEXT NOT NULL DEFAULT '{}'",  # JSON: rule: [points, points at most]
    "ALTER TABLE records ADD COLUMN checksum INTEGER NOT NULL DEFAULT -1",
    """
    UPDATE records SET
        complete = told_in(packed, 'complete'), public_only = told_in(packed, 'public_only'),
        points = points_in(packed),
        checksum = checksum(packed, key, verdict, score, max_score, rule,
                            told_in(packed, 'complete'), told_in(packed, 'public_only'), points_in(packed))
    """,
    "UPDATE sources SET content = packed(content), headers = packed(headers)",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    _FIRST,
    _WHO_IS_MISSING,
    _WHO_IS_WHO,
    _RECORDS_ARE_PACKED,
    _POINTS_ARE_APART,
)
"""A store says by PRAGMA user_version how many of these it has behind it."""
