"""Read TOML files that people write: their values, and the line to show for a mistake in them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from grader.assignment.toml_mistakes import syntax_mistake
from grader.core.errors import InputError, Problem
from grader.system.text_file import read_text

_MOST_BYTES = 256 << 10
"""Every file of the project is smaller than a quarter of this."""

_MOST_PARTS = 16
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"^[ \t\[]*+(?:{_PART}\.[ \t]*+){{{_MOST_PARTS}}}", re.MULTILINE)
"""For a key such as a.b.c.d = 1 the parser's time and memory grow with the square of the number of parts."""

_LINE = re.compile(r"[ \t]*+(?:(?P<open>\[+)(?P<table>[^\[\]]*+)\]|(?P<key>[^\s=\[#][^=]*+)=)")
_MOST_NAME = 200
_QUOTES_AND_BLANKS = str.maketrans("", "", "\"' \t")


def read(path: Path, error: Callable[[list[Problem]], InputError]) -> tuple[str, dict[str, Any]]:
    """Return a file's text and values. Raises `error` with path and line when it cannot be read or is not TOML."""
    text = read_text(path, _MOST_BYTES, error)
    line = 1
    try:
        if long := _LONG_KEY.search(text):
            line = text.count("\n", 0, long.start()) + 1
            message = f"holds a key of more than {_MOST_PARTS} parts; write it shorter"
        else:
            return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as failure:
        line, message = syntax_mistake(text, str(failure))
    except ValueError:  # Python converts no number of more than 4300 digits
        message = "holds a number with thousands of digits"
    except RecursionError:
        message = "is nested too deeply"
    raise error([Problem(path, line, message)])


def line_of(text: str, key: str, table: str = "", row: int | None = None) -> int:
    """Return the line of a key, in a table when one is named; for a missing key the table's line, else the first.

    `row` counts the tables [[TABLE]] of one name, from 0.
    """
    places = _places(text)
    if not table:
        return places.anywhere.get(_bare(key), 1)
    headers = places.headers.get(("[" if row is None else "[[") + _bare(table), ())
    if len(headers) <= (row or 0):
        return 1
    header = headers[row or 0]
    return places.within.get((header, _bare(key)), header)


class _Places(NamedTuple):
    """The lines of all tables and keys of a file, computed once, because a file may have thousands of mistakes."""

    headers: dict[str, list[int]]
    """The lines of tables, by their opening brackets and names."""
    within: dict[tuple[int, str], int]
    """The lines of keys, by the line of their table (0: before the first) and their names."""
    anywhere: dict[str, int]


@lru_cache(maxsize=4)
def _places(text: str) -> _Places:
    places = _Places({}, {}, {})
    header = 0
    for number, line in enumerate(text.split("\n"), start=1):
        match = _LINE.match(line)
        if match is not None and match["key"] is not None:
            key = _bare(match["key"])
            places.within.setdefault((header, key), number)
            places.anywhere.setdefault(key, number)
        elif line.lstrip(" \t").startswith("["):
            header = number
            if match is not None:
                places.headers.setdefault(match["open"] + _bare(match["table"]), []).append(number)
    return places


def _bare(name: str) -> str:
    """Return a name without its quotes and without blanks around its dots."""
    return name[:_MOST_NAME].translate(_QUOTES_AND_BLANKS)
