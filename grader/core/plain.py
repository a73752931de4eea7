"""Plain values, as JSON has them: what stands at a path, and parts that could not be read of a program."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

from reference.oracle import Plain

UNREADABLE = "!"
"""The key of a value that could not be read."""

EACH = "*"
"""The step of a path that stands for each entry of a list or an object."""

ABSENT: Final = object()
"""What stands at a path that leads nowhere."""


class Codec(NamedTuple):
    """How the plain values of a record become bytes, and bytes plain values; equal values are equal bytes."""

    encode: Callable[[dict[str, Plain]], bytes]
    decode: Callable[[bytes], Any]
    """Raises `CannotGoOn` for bytes that are no record."""


def is_unreadable(value: object) -> bool:
    """Whether a value stands for one that could not be read; it says why."""
    return isinstance(value, dict) and value.keys() == {UNREADABLE}


def child(value: object, key: str) -> object:
    """The entry of a list or an object; ABSENT where there is none."""
    if isinstance(value, list) and key.isdecimal():
        return value[int(key)] if int(key) < len(value) else ABSENT
    return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT


def at(value: object, steps: Sequence[str]) -> object:
    """What stands at a path: below a star an object with what stands there for each key."""
    for number, step in enumerate(steps):
        if step == EACH:
            return {key: at(entry, steps[number + 1 :]) for key, entry in entries(value).items()}
        value = child(value, step)
    return value


def entries(value: object) -> dict[str, object]:
    """The entries of a list or an object by their keys; none of another value."""
    if isinstance(value, list):
        return {str(number): entry for number, entry in enumerate(value)}
    return value if isinstance(value, dict) and not is_unreadable(value) else {}


def without(value: object, keys: Collection[str]) -> object:
    """A list or an object without the entries of these keys; another value as it is."""
    if EACH in keys:
        return []
    if isinstance(value, list):
        return [item for place, item in enumerate(value) if str(place) not in keys]
    return {key: item for key, item in value.items() if key not in keys} if isinstance(value, dict) else value
