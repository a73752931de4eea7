"""Damages copies of a store at random and gives each copy to every command that reads stores."""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from grader.cli.app import app
from grader.tests.support.command import grade
from grader.tests.support.counter_house import BELOW, RIGHT
from grader.tests.support.odd_classes import NAME, put

COMMANDS = (
    ("runs",),
    ("show", "ada"),
    ("show", "bob", "--format", "json", "--run", "1"),
    ("export",),
    ("export", "--format", "canvas-csv", "--partial"),
    ("export", "--format", "jsonl"),
    ("export", "--format", "html", "--output", "reports"),
    ("diff", "1", "1"),
    ("diff", "1", "1", "--apply"),
    ("regrade", "--jobs", "1"),
    ("batch", "in", "--lab", "counter", "--jobs", "1"),
    ("runs", "--prune", "--keep", "1", "--yes"),
)

_ROSTER = "folder,name,sid\nada,Ada,1\nbob,Bob,2\neve,Eve,3\n"
_OVERRIDES = '[[override]]\nsubmission = "bob"\nrule = "below"\npoints = 10\nreason = "half right"\nby = "Lee"\n'

_HEADER = 100
"""The bytes of a SQLite file before its first page; almost any damage there makes it another kind of file."""


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return the file with a few bytes, runs of bytes, letters or pages that are others, or cut off."""
    data = bytearray(content)
    how = chance.choice(("bytes", "run", "letters", "page", "cut"))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(_HEADER, len(data)) if chance.random() < 0.95 else chance.randrange(_HEADER)
        if how == "bytes":
            data[at] = chance.randrange(256)
        elif how == "run":
            length = len(data[at : at + chance.randint(2, 200)])
            data[at : at + length] = chance.randbytes(length)
        elif how == "letters":
            letters = [place for place in range(at, min(len(data), at + 4096)) if chr(data[place]).isalpha()]
            for place in letters[: chance.randint(1, 10)]:
                data[place] = chance.randrange(128, 256)
        elif how == "page":
            first, second = (chance.randrange(len(data) // 4096) * 4096 for _ in range(2))
            data[first : first + 4096] = data[second : second + 4096]
    return bytes(data[: chance.randrange(len(data))] if how == "cut" else data)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a command ended on a damaged store."""

    number: int
    """Of the damaged copy."""
    words: tuple[str, ...]
    code: int
    out: str
    err: str


def graded_class(place: Path) -> Path:
    """Make a class of counters, grade it with a roster and overrides, and return the store."""
    for name, source in {"ada": RIGHT, "bob": BELOW}.items():
        put(place / "in" / name / NAME, source.encode())
    (place / "roster.csv").write_text(_ROSTER, encoding="utf-8")
    (place / "overrides.toml").write_text(_OVERRIDES, encoding="utf-8")
    words = ("batch", "in", "--lab", "counter", "--roster", "roster.csv", "--overrides", "overrides.toml")
    done = grade(*words, cwd=place)
    assert done.code == 1, done.err
    return place / "grades.sqlite"


def ends_on_damaged(store: Path, count: int) -> Iterator[End]:
    """Give `count` damaged copies of a store, each to all commands, in its folder."""
    content, chance = store.read_bytes(), random.Random(count)
    copy = store.with_name("damaged.sqlite")
    with contextlib.chdir(store.parent), mock.patch.dict(os.environ):
        os.environ.pop("GRADE_TRACEBACK", None)
        for number in range(count):
            data = damaged(content, chance)
            for words in COMMANDS:
                for path in store.parent.glob(f"{copy.name}*"):
                    path.unlink()
                copy.write_bytes(data)
                out, err = io.StringIO(), io.StringIO()
                with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                    code = app([*words, "--store", str(copy)])
                yield End(number=number, words=words, code=code, out=out.getvalue(), err=err.getvalue())
