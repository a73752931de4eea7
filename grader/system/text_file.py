"""Read input files with a size bound, and shorten their values for messages.

Parsers of TOML and YAML need more than linear time for some inputs, so the size is bounded before anything is parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grader.core.errors import InputError, Problem
from grader.core.sanitize import one_line

_MOST_SHOWN = 60
_MOST_BITS = 128


def read_bytes(path: Path, most: int, error: Callable[[list[Problem]], InputError]) -> bytes:
    """Return the content of a file. Raises `error` when it cannot be read or has more than `most` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)  # a device such as /dev/zero never ends
    except OSError as failure:
        raise error([Problem(path, 1, f"cannot be read: {failure.strerror}")]) from None
    if len(content) > most:
        raise error([Problem(path, 1, f"has more than {most >> 10} KB, which are too many; is it the right file?")])
    return content


def read_text(path: Path, most: int, error: Callable[[list[Problem]], InputError], *, advice: str = "") -> str:
    """Return the content as UTF-8 text whose lines end in a line feed. If it is not UTF-8, the error adds `advice`."""
    content = read_bytes(path, most, error)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        raise error([Problem(path, line, f"is not UTF-8 text{advice}")]) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def short(value: object) -> str:
    """Return a value from a file as a message shows it: text in quotes, long values shortened."""
    if isinstance(value, str):
        return f"'{cut(value)}'"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number with very many digits"  # Python refuses to convert it to text
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return str(value)


def cut(text: str) -> str:
    """Return text from a file as a message shows it: in one line, and only its beginning when it is long."""
    return one_line(text) if len(text) <= _MOST_SHOWN else f"{one_line(text[:_MOST_SHOWN])}..."
