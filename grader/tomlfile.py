"""TOML files as people write them: what they hold, and the line to show when something in them is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grader.errors import InputError, Problem

__all__ = ["line_of", "read"]


def read(path: Path, error: Callable[[list[Problem]], InputError]) -> tuple[str, dict[str, Any]]:
    """The text of a file and its values. Raises `error` with path and line when it cannot be read or is no TOML."""
    text, line = "", 1
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as failure:
        message = f"cannot be read: {failure.strerror}"
    except UnicodeDecodeError:
        message = "is not UTF-8 text"
    except tomllib.TOMLDecodeError as failure:
        place = re.search(r"line (\d+)", str(failure))
        line = int(place.group(1)) if place else text.count("\n") + 1
        message = f"is not TOML: {failure}"
    except ValueError:  # Python converts no number of more than 4300 digits
        message = "holds a number with thousands of digits"
    except RecursionError:
        message = "is nested too deeply"
    raise error([Problem(path, line, message)])


def line_of(text: str, key: str, table: str = "", row: int | None = None) -> int:
    """The line of a key, in a table when one is named; where it is missing, that of the table, else the first.

    `row` counts tables [[TABLE]] of one name, from 0.
    """
    opened, closed = ("[", "]") if row is None else ("[[", "]]")
    pattern = rf"^[ \t]*{re.escape(opened + table + closed)}"
    headers = list(re.finditer(pattern, text, re.MULTILINE)) if table else []
    header = headers[row or 0] if len(headers) > (row or 0) else None
    if table and header is None:
        return 1
    start = header.end() if header else 0
    following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, start) if table else None
    end = following.start() if following else len(text)
    found = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*=", re.MULTILINE).search(text, start, end)
    return text.count("\n", 0, found.start() if found else start) + 1
