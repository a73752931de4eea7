"""The memory that the framework hands to `llm_init`: magic words between two guards (Global Constraint 4)."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import lru_cache

from reference.paged_kv.words import BLOCK_SIZE, KV_PER_BLOCK, KV_SIZE

__all__ = ["GUARD_BYTES", "GUARD_WORDS", "Pool", "magic_words", "place_name", "region_words"]

GUARD_BYTES = 64
"""Bytes of ours before and behind every pool; they must stay as they are."""

GUARD_WORDS = GUARD_BYTES // KV_SIZE
"""The same in words: in a region the pool begins with this one."""

_SPREAD = 0x9E3779B1  # odd, so multiplying by it maps 32-bit words one to one


def region_words(pool_bytes: int) -> int:
    """Words of the region that holds a pool of `pool_bytes` bytes between its two guards."""
    return (GUARD_BYTES + pool_bytes + GUARD_BYTES + KV_SIZE - 1) // KV_SIZE


@lru_cache(maxsize=256)
def magic_words(seed: int, slot: int, pool_bytes: int) -> bytes:
    """The first content of the region of pool number `slot`: another word at every place of every pool.

    Regions have fewer than 2^24 words, so the numbers `slot * 2^24 + place` are distinct, and so are the words.
    The driver computes the same formula.
    """
    start = (seed * 0x85EBCA6B + (slot << 24)) & 0xFFFFFFFF
    words = ((start + place) * _SPREAD & 0xFFFFFFFF for place in range(region_words(pool_bytes)))
    return array("I", words).tobytes()


def place_name(word: int, pool_bytes: int) -> str:
    """Name the word number `word` of a region as the handout would: by block and slot."""
    byte = word * KV_SIZE - GUARD_BYTES
    if byte < 0:
        return f"the {-byte} bytes before the pool"
    block, slot = divmod(byte // KV_SIZE, KV_PER_BLOCK)
    if block < pool_bytes // BLOCK_SIZE:
        return f"block {block}, slot {slot}"
    if byte < pool_bytes:
        return f"the tail of the pool, {byte - pool_bytes // BLOCK_SIZE * BLOCK_SIZE} bytes behind its last block"
    return f"{byte - pool_bytes} bytes behind the pool"


@dataclass(slots=True, frozen=True)
class Pool:
    """A pool with its guards; `memory` is what the program sees."""

    region: array[int]
    pool_bytes: int

    @classmethod
    def fresh(cls, seed: int, slot: int, pool_bytes: int) -> Pool:
        """A pool as `llm_init` gets it, full of magic words."""
        return cls(array("i", magic_words(seed, slot, pool_bytes)), pool_bytes)

    @property
    def memory(self) -> memoryview:
        """The bytes between the guards."""
        return memoryview(self.region).cast("B")[GUARD_BYTES : GUARD_BYTES + self.pool_bytes]
