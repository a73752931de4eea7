"""Tests of deltas: however much of a record one tells, applied it makes that record; nonsense is refused."""

from __future__ import annotations

import operator
import struct
from itertools import starmap

import pytest
from hypothesis import given, strategies as st

from grader.runtime.native.delta import applied, length_after, whole

_WORDS = st.lists(st.integers(0, 2), min_size=2, max_size=12)
_BEFORE = bytes(40)


def packed(*words: int) -> bytes:
    """A record, or a delta, of these words."""
    return struct.pack(f"<{len(words)}i", *words)


def few_words(before: list[int], after: list[int]) -> bytes:
    """The words behind the reply that differ, by their places from the end."""
    size = len(after)
    pairs = [(place - size, after[place]) for place in range(2, size) if before[place] != after[place]]
    return packed(-1, *after[:2], *(word for pair in pairs for word in pair))


def rest(before: list[int], after: list[int], memory: int, more: int) -> bytes:
    """All but so many words at the end, and those that differ of these; `more` words besides."""
    end = len(after) - memory
    different = [place for place in range(memory) if before[len(before) - memory + place] != after[end + place]]
    first, last = (different[0], different[-1] + 1) if different else (0, 0)
    first, last = max(0, first - more), min(memory, last + more)
    return packed(memory, first, last, *after[:end], *after[end + first : end + last])


@given(before=_WORDS, after=_WORDS, memory=st.integers(0, 12), more=st.integers(0, 3))
def test_a_delta_makes_the_record_that_it_was_made_of(
    before: list[int], after: list[int], memory: int, more: int
) -> None:
    """However much of it is told; and its length is known without making it."""
    old, new = packed(*before), packed(*after)
    memory = min(memory, len(before) - 2, len(after) - 2)
    deltas = [whole(new), rest(before, after, memory, more)]
    if len(before) == len(after) and sum(map(operator.ne, before[2:], after[2:])) <= 2:
        deltas.append(few_words(before, after))
    for delta in deltas:
        assert (applied(delta, old), length_after(delta, len(old))) == (new, len(new))


@pytest.mark.parametrize("place", [-11, -10, -9, 0, 1, 2**31 - 1, -(2**31)])
def test_a_word_outside_the_record_is_not_taken(place: int) -> None:
    """Nor one of the reply, which stands at its own place."""
    with pytest.raises(ValueError, match="none"):
        length_after(packed(-1, 0, 0, place, 7), len(_BEFORE))


@pytest.mark.parametrize("words", [3, 4, 100_000])
def test_many_words_are_told_otherwise(words: int) -> None:
    """One at a time they would cost more than the record, and the same place may come again."""
    with pytest.raises(ValueError, match="more than few"):
        length_after(packed(-1, 0, 0, *[-1, 7] * words), len(_BEFORE))


@pytest.mark.parametrize("memory", [9, 10, 1000, 2**31 - 1])
def test_memory_that_was_not_there_is_not_taken(memory: int) -> None:
    """The reply before is no memory either."""
    with pytest.raises(ValueError, match="share more"):
        length_after(packed(memory, 0, 0, 1, 0), len(_BEFORE))


@pytest.mark.parametrize(
    "head",
    list(starmap(packed, [(-2, 0, 0), (4, -1, 0), (4, 3, 2), (4, 0, 5), (4, 0, 4), (0, 0, 1), (-(2**31), 0, 0)])),
)
def test_words_that_are_not_there_are_not_taken(head: bytes) -> None:
    """Whatever the head says: behind it are a reply and no other word."""
    with pytest.raises(ValueError, match="no reply"):
        length_after(head + packed(1, 0), len(_BEFORE))


@pytest.mark.parametrize("size", [*range(12), 13, 19])
def test_a_delta_that_ends_early_is_none(size: int) -> None:
    """Without a reply, or within a word."""
    with pytest.raises(ValueError, match="no reply"):
        length_after(bytes(size), 100)
    if size > 12:
        with pytest.raises(ValueError, match="within a word"):
            length_after(packed(-1, 1, 0) + bytes(size - 12), 100)


@pytest.mark.parametrize("before", range(8))
def test_few_words_need_a_record_before(before: int) -> None:
    """The first record of a case is told whole."""
    with pytest.raises(ValueError, match="no record before"):
        length_after(packed(-1, 1, 0), before)


@given(
    delta=st.builds(bytes.__add__, st.sampled_from([packed(-1), packed(2, 0, 1), b""]), st.binary(max_size=60)),
    before=st.binary(max_size=60),
)
def test_a_delta_of_any_bytes_is_refused_or_keeps_its_word(delta: bytes, before: bytes) -> None:
    """What `length_after` lets through can be applied, and is as long as it said."""
    try:
        length = length_after(delta, len(before))
    except ValueError:
        return
    assert len(applied(delta, before)) == length
