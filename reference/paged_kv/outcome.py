"""What the calls of the handout come to: replies with their reasons, and what was done to the pool."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from reference.model import Access, Span
from reference.operation import Reply
from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE

__all__ = ["InPlace", "Outcome", "accepted", "copy_allowed", "refused", "store_allowed"]

_MOST_KEPT = 1 << 14


@dataclass(slots=True, eq=False)
class Outcome:
    """What one call returned, which blocks it took, and what it did to the pool.

    Many calls share one, so none is ever changed; `frozen` would make new ones twice as dear.
    """

    reply: Reply
    taken: tuple[int, ...] = ()
    """The blocks, in the order in which they were taken."""
    seq_id: int = 0
    logical: int = 0
    """The first of them is this logical block of that sequence, and the others are the next ones."""
    stored: int | None = None
    """The word of the pool where kv_data went (Part 2.1: one int of 4 bytes)."""
    copied: tuple[int, int] | None = None
    """(old block, new block) of a copy-on-write."""
    allowed: tuple[Span, ...] = ()
    """The only bytes of the pool that the call may touch (Global Constraint 4)."""

    @property
    def written(self) -> tuple[int, int]:
        """The words of the pool that were written: the first one, and their end."""
        if self.copied is not None:
            return self.copied[1] * KV_PER_BLOCK, (self.copied[1] + 1) * KV_PER_BLOCK
        return (0, 0) if self.stored is None else (self.stored, self.stored + 1)


@cache
def accepted(reply: str, clause: str, *circumstances: str) -> Outcome:
    """A call that did its work and, as far as this says, nothing to the pool."""
    return Outcome(Reply(text=reply, clause=clause, circumstances=frozenset(circumstances)))


@cache
def refused(reply: str, clause: str, *circumstances: str) -> Outcome:
    """A call that must fail, and why."""
    return Outcome(Reply(text=reply, refused=True, clause=clause, circumstances=frozenset(circumstances)))


def store_allowed(number: int, word: int) -> tuple[Span, ...]:
    """To write one word of the pool of engine `number`."""
    return (Span(number, word * KV_SIZE, KV_SIZE, Access.WRITE),)


def copy_allowed(number: int, shared: int, new: int) -> tuple[Span, ...]:
    """To write the new block of a copy-on-write, and to read the shared one."""
    return (
        Span(number, new * BLOCK_SIZE, BLOCK_SIZE, Access.WRITE),
        Span(number, shared * BLOCK_SIZE, BLOCK_SIZE, Access.READ),
    )


class InPlace(dict[int, Outcome]):
    """The outcome of an append in place for each word of a pool: most calls are one, and so make nothing new."""

    def __init__(self, number: int, *, none_free: bool) -> None:
        super().__init__()
        circumstances = ("in-place", "none-free") if none_free else ("in-place",)
        self._reply = accepted("0", "Task 4/count-returns", *circumstances).reply
        self._number = number

    def __missing__(self, word: int) -> Outcome:
        if len(self) >= _MOST_KEPT:  # of pools far larger than most
            self.clear()
        outcome = self[word] = Outcome(self._reply, stored=word, allowed=store_allowed(self._number, word))
        return outcome

    @staticmethod
    @cache
    def of(number: int, *, none_free: bool) -> InPlace:
        """Those of the engines of this number, while there are free blocks or when there are none."""
        return InPlace(number, none_free=none_free)
