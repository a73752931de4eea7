"""Keys for caches over values that are the same for a whole class of submissions."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["Same"]

T = TypeVar("T")


class Same(Generic[T]):
    """A cache key: equal only for the same object, which it keeps alive. Long traces are not hashed again."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
