"""Damages copies of a store at random and gives each copy to every command that reads stores.

As a program, it runs in one process, because a process for each of thousands of commands would take minutes:
`python -m grader.tests.support.damaged_stores STORE COUNT` writes a JSON object per command, in a folder with `in/`.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
from pathlib import Path

from grader.cli.app import app

__all__ = ["COMMANDS"]

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


def _main(store: Path, count: int) -> None:
    content, chance = store.read_bytes(), random.Random(count)
    os.environ.pop("GRADE_TRACEBACK", None)
    for number in range(count):
        copy = store.with_name("damaged.sqlite")
        data = damaged(content, chance)
        for words in COMMANDS:
            for path in store.parent.glob(f"{copy.name}*"):
                path.unlink()
            copy.write_bytes(data)
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = app([*words, "--store", str(copy)])
            end = {"number": number, "words": words, "code": code, "out": out.getvalue(), "err": err.getvalue()}
            sys.stdout.write(f"{json.dumps(end)}\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
