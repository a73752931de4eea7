"""Differences in a sentence of their own, where "field is actual, expected" is not the way to say it."""

from __future__ import annotations

from collections.abc import Sequence

from reference.paged_kv.readable import UNTOUCHED, pointer_name
from reference.paged_kv.record import Pointer

__all__ = ["FRESH", "list_is_broken", "never_set", "not_copied"]

FRESH = int.from_bytes(b"\xa5" * 4, "little", signed=True)
"""An int in memory that malloc returned and nobody has written to: the driver fills it so."""


def never_set(field: str, wanted: str, found: int) -> str:
    """The sentence for an int that a program has forgotten; empty when it has put something there."""
    return f"{field} must be {wanted}; it was never set" if found == FRESH else ""


def not_copied(field: str, old_block: int, actual: str) -> str:
    """A word that a copying append had to bring along."""
    said = f"{field} was not copied from block {old_block}"
    return said if actual == UNTOUCHED else f"{said}: it is {actual}"


def list_is_broken(end: Pointer, found: Sequence[int]) -> str:
    """A list along which nobody comes back to its head; `found` are the sequences before the end."""
    walk = f"following next reaches {pointer_name(end).removeprefix('a pointer to ')}; it must come back"
    if end is Pointer.SHARED:
        walk = "following next never comes back"
    behind = f" (found before: {', '.join(map(str, found))})" if found else ""
    return f"{walk} to the dummy head{behind}"
