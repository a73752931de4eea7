"""The pool: its magic words, its guards, and how its words are named."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array

import pytest

from reference.paged_kv.pool import GUARD_BYTES, Pool, magic_words, place_name, region_words
from reference.tests.paged_kv.naive import first_words


@pytest.mark.parametrize(("pool_bytes", "words"), [(0, 32), (1, 33), (4, 33), (63, 48), (64, 48), (65, 49), (100, 57)])
def test_a_region_holds_the_pool_and_two_guards_in_whole_words(pool_bytes: int, words: int) -> None:
    """64 bytes on each side, rounded up to a word."""
    assert words == region_words(pool_bytes)


@pytest.mark.parametrize(("seed", "slot", "pool_bytes"), [(0, 1, 64), (1, 1, 64), (20110, 3, 1000), (2**31, 2, 64)])
def test_magic_words_follow_their_formula(seed: int, slot: int, pool_bytes: int) -> None:
    """The driver and the second model compute the same words."""
    assert first_words(seed, slot, pool_bytes) == array("I", magic_words(seed, slot, pool_bytes)).tolist()


def test_magic_words_differ_at_every_place_of_every_pool() -> None:
    """A word that turns up in a wrong place tells where it comes from."""
    words = [word for slot in range(1, 9) for word in array("I", magic_words(20110, slot, 64 * 300))]

    assert len(words) == len(set(words))


def test_magic_words_grow_from_the_seed() -> None:
    """Another seed, another pattern at every place."""
    one, other = (array("I", magic_words(seed, 1, 640)) for seed in (1, 2))

    assert not any(a == b for a, b in zip(one, other, strict=True))


def test_a_small_pool_has_the_same_words_as_the_start_of_a_large_one() -> None:
    """A place has its word whatever the size."""
    small, large = magic_words(1, 1, 64), magic_words(1, 1, 128)

    assert small == large[: len(small)]


def test_the_memory_of_a_pool_lies_between_its_guards() -> None:
    """The program sees pool_bytes bytes, and writing them changes the region."""
    pool = Pool.fresh(1, 1, 100)
    fresh = magic_words(1, 1, 100)
    pool.memory[0] = fresh[GUARD_BYTES] ^ 1
    region = pool.region.tobytes()

    assert 100 == len(pool.memory)
    assert [GUARD_BYTES] == [i for i, (a, b) in enumerate(zip(fresh, region, strict=True)) if a != b]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        (0, "the 64 bytes before the pool"),
        (15, "the 4 bytes before the pool"),
        (16, "block 0, slot 0"),
        (31, "block 0, slot 15"),
        (32, "block 1, slot 0"),
        (48, "the tail of the pool, 0 bytes behind its last block"),
        (49, "the tail of the pool, 4 bytes behind its last block"),
        (51, "0 bytes behind the pool"),
        (52, "4 bytes behind the pool"),
    ],
)
def test_places_are_named_by_block_and_slot(word: int, name: str) -> None:
    """In a pool of 140 bytes: two blocks, a tail of three words, and the guards around."""
    assert name == place_name(word, 140)
