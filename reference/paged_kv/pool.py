"""The memory that the framework hands to `llm_init`: magic words between two guards (Global Constraint 4)."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import lru_cache

from reference.lent import lent_words
from reference.paged_kv.constants import BLOCK_SIZE, KV_SIZE

GUARD_BYTES = BLOCK_SIZE
"""The number of bytes before and after every pool that belong to the framework. Nobody may change them. A program that
writes to a block before the first block or after the last one changes them."""

GUARD_WORDS = GUARD_BYTES // KV_SIZE
"""`GUARD_BYTES` in words: the index of the pool's first word in the pool's region."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of `pool_bytes` bytes. `region` has a guard, the pool, and a guard, as ints of 4 bytes."""

    region: array[int]
    pool_bytes: int

    @classmethod
    def fresh(cls, seed: int, number: int, pool_bytes: int) -> Pool:
        """The pool that `llm_init` gets for engine `number`, full of magic words."""
        return cls(array("i", magic_words(seed, number, pool_bytes)), pool_bytes)

    @property
    def records(self) -> memoryview:
        """The pool without its guards, as KV records of 4 bytes; writing to them changes the region."""
        return memoryview(self.region)[GUARD_WORDS : GUARD_WORDS + self.pool_bytes // KV_SIZE]


def region_words(pool_bytes: int) -> int:
    """Return the number of words in the region of a pool of `pool_bytes` bytes, rounded up."""
    return (GUARD_BYTES + pool_bytes + GUARD_BYTES + KV_SIZE - 1) // KV_SIZE


@lru_cache(maxsize=256)
def magic_words(seed: int, number: int, pool_bytes: int) -> bytes:
    """Return the first content of the region of engine `number`. All words of a trace's pools differ (`lent_words`)."""
    return lent_words(seed, number, pool_bytes, GUARD_BYTES).tobytes()
