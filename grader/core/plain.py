"""Plain values, as in JSON: looking up paths, and marking parts of a program's state that could not be read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from reference.oracle import Plain

UNREADABLE = "!"
"""The key of a value that could not be read."""

EACH = "*"
"""The step of a path that matches each entry of a list or an object."""

ABSENT: Final = object()
"""The value at a path that does not exist."""


class Codec(NamedTuple):
    """Converts the plain values of a record to bytes and back. Equal values are equal bytes."""

    encode: Callable[[dict[str, Plain]], bytes]
    decode: Callable[[bytes], Any]
    """Raises `CannotGoOn` for bytes that are not a record."""


def is_unreadable(value: object) -> bool:
    """Whether a value marks a part that could not be read, with the reason."""
    return isinstance(value, dict) and value.keys() == {UNREADABLE}


def child(value: object, key: str) -> object:
    """Return the entry of a list or an object, ABSENT if there is none."""
    if isinstance(value, list) and key.isdecimal():
        return value[int(key)] if int(key) < len(value) else ABSENT
    return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT


def at(value: object, steps: Sequence[str]) -> object:
    """Return the value at a path. For a star that is an object with the value at the rest of the path for each key."""
    for number, step in enumerate(steps):
        if step == EACH:
            return {key: at(entry, steps[number + 1 :]) for key, entry in entries(value).items()}
        value = child(value, step)
    return value


def entries(value: object) -> dict[str, object]:
    """Return the entries of a list or an object by their keys; {} for any other value."""
    if isinstance(value, list):
        return {str(number): entry for number, entry in enumerate(value)}
    return value if isinstance(value, dict) and not is_unreadable(value) else {}


def without(value: object, keys: Collection[str]) -> object:
    """Return a list or an object without the entries of these keys; any other value unchanged."""
    if EACH in keys:
        return []
    if isinstance(value, list):
        return [item for place, item in enumerate(value) if str(place) not in keys]
    return {key: item for key, item in value.items() if key not in keys} if isinstance(value, dict) else value
