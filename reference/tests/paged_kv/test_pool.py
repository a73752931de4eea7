"""The pool: its magic words and its guards."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array

import pytest

from reference.paged_kv.pool import GUARD_BYTES, Pool, magic_words, region_words
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


@pytest.mark.parametrize(("pool_bytes", "records"), [(0, 0), (3, 0), (64, 16), (100, 25), (102, 25)])
def test_the_records_of_a_pool_lie_between_its_guards(pool_bytes: int, records: int) -> None:
    """Bytes behind the last whole record belong to none."""
    assert records == len(Pool.fresh(1, 1, pool_bytes).records)


def test_writing_a_record_changes_the_region() -> None:
    """The first one stands right behind the guard."""
    pool = Pool.fresh(1, 1, 100)
    pool.records[0] ^= 1
    fresh, region = magic_words(1, 1, 100), pool.region.tobytes()

    assert [GUARD_BYTES] == [i for i, (a, b) in enumerate(zip(fresh, region, strict=True)) if a != b]
