"""Differences in the words of a student."""

from __future__ import annotations

import pytest

from grader.core.judgement import NEVER_SET, Difference
from grader.labs.paged_kv.judging.differences import FRESH, list_is_broken, never_set, not_copied
from grader.labs.paged_kv.judging.record import Pointer


def test_a_difference_says_what_is_and_what_must_be() -> None:
    """Where nobody gave it a sentence of its own."""
    difference = Difference(facet="counters", field="free_local_blocks", expected="3", actual="4")

    assert difference.seen == "free_local_blocks is 4, expected 3"
    assert difference.wanted == "free_local_blocks must be 3, not 4"


def test_what_was_never_set_shows_no_number() -> None:
    """The fill of fresh memory is no value that a program chose."""
    said = never_set("kv_count", "1", FRESH)
    unset = Difference(
        facet="fields", field="kv_count", expected="1", actual=str(FRESH), tags=frozenset({NEVER_SET}), sentence=said
    )

    assert (unset.seen, unset.wanted) == (said, said)
    assert said == "kv_count must be 1; it was never set"
    assert never_set("kv_count", "1", 0) == ""


def test_a_word_that_was_not_copied() -> None:
    """What stands there instead is said where somebody wrote it."""
    assert not_copied("block 1, slot 4", 0, "untouched") == "block 1, slot 4 was not copied from block 0"
    assert not_copied("block 1, slot 4", 0, "0") == "block 1, slot 4 was not copied from block 0: it is 0"


@pytest.mark.parametrize(
    ("end", "found", "said"),
    [
        (Pointer.NULL, [], "following next reaches NULL; it must come back to the dummy head"),
        (
            Pointer.FREED,
            [1, 2],
            "following next reaches freed memory; it must come back to the dummy head (found before: 1, 2)",
        ),
        (Pointer.SHARED, [7], "following next never comes back to the dummy head (found before: 7)"),
    ],
)
def test_a_list_without_a_way_back(end: Pointer, found: list[int], said: str) -> None:
    """Where the walk ends, and how far it came."""
    assert list_is_broken(end, found) == said
