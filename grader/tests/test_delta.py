"""Tests of records told as what they changed: however a program tells one, it is the same record."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from hypothesis import given, strategies as st

from grader.compare import Comparison, compare
from grader.delta import applied, length_after, whole
from grader.grammar import Case
from grader.labs.paged_kv import lab
from grader.replay import Played, PlayedStep
from grader.tests.programs import expected_records, made

_CASE = made(
    "told", "create_sequence 1 40 -> seq; fork_sequence 1 2 -> seq; append_kv 2 7 -> 0; append_kv 2 8 -> 0; "
    "append_kv 1 9 -> 0; free_sequence 1 -> 0; append_kv 2 10 -> 0"
)  # fmt: skip
_WORDS = st.lists(st.integers(0, 2), min_size=2, max_size=12)


def packed(words: list[int]) -> bytes:
    """A record of these words."""
    return struct.pack(f"<{len(words)}i", *words)


def most_shared(before: bytes, after: bytes) -> tuple[int, int]:
    """As many words as both have in common behind the reply, and then at the end: what drivers/frames.c sends."""
    old, new = (memoryview(record).cast("i") for record in (before, after))
    shorter, same, tail = min(len(old), len(new)), 0, 0
    while 2 + same < shorter and old[2 + same] == new[2 + same]:
        same += 1
    while 2 + same + tail < shorter and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return same, tail


def delta(after: bytes, same: int, tail: int) -> bytes:
    """The record, told by so many words that are as before."""
    return struct.pack("<2i", same, tail) + after[:8] + after[8 + 4 * same : len(after) - 4 * tail]


def shared(before: bytes, after: bytes) -> bytes:
    """As a driver tells it."""
    return delta(after, *most_shared(before, after)) if before else whole(after)


def half(before: bytes, after: bytes) -> bytes:
    """Right, but with more words than needed, as no driver of ours tells it."""
    return delta(after, *(count // 2 for count in most_shared(before, after))) if before else whole(after)


def entirely(_: bytes, after: bytes) -> bytes:
    """As a STEP frame."""
    return whole(after)


def played(case: Case, records: list[bytes], tell: Callable[[bytes, bytes], bytes]) -> Played:
    """A case whose program left these records and told them so."""
    steps: list[PlayedStep] = []
    for before, after in pairwise([b"", *records]):
        steps.append(PlayedStep(tell(before, after), steps[-1] if steps else None, len(after)))
    return Played(case, steps=steps, ended=True)


def seen(comparison: Comparison) -> tuple[object, ...]:
    """What a comparison found."""
    return comparison.deviations, comparison.actual, comparison.end, comparison.refused, comparison.allowed


@given(before=_WORDS, after=_WORDS, less=st.integers(0, 12), least=st.integers(0, 12))
def test_a_delta_makes_the_record_that_it_was_made_of(
    before: list[int], after: list[int], less: int, least: int
) -> None:
    """However much of what is shared it names; and its length is known without making it."""
    old, new = packed(before), packed(after)
    same, tail = most_shared(old, new)
    told = delta(new, max(0, same - less), max(0, tail - least))

    assert (applied(told, old), length_after(told, len(old))) == (new, len(new))
    assert applied(whole(new), old) == new


@pytest.mark.parametrize(
    ("same", "tail", "before"), [(-1, 0, 40), (0, -1, 40), (5, 4, 40), (9, 0, 40), (0, 9, 40), (2**31 - 1, 1, 40)]
)
def test_a_delta_that_shares_more_than_there_is_is_none(same: int, tail: int, before: int) -> None:
    """Nor one that takes words away and adds them at the other end."""
    with pytest.raises(ValueError, match="share more"):
        length_after(struct.pack("<4i", same, tail, 0, 0), before)


@pytest.mark.parametrize("size", range(16))
def test_a_delta_without_a_reply_is_none(size: int) -> None:
    """A body that is too short."""
    with pytest.raises(ValueError, match="no reply"):
        length_after(bytes(size), 100)


def test_a_record_is_made_whole_when_somebody_asks() -> None:
    """The last one first, so through all before it; then each again."""
    records = expected_records(_CASE)
    told = played(_CASE, records, shared)

    assert told.steps[-1].record == records[-1]
    assert [step.record for step in told.steps] == records
    assert sum(len(step.delta) for step in told.steps) < 0.6 * sum(map(len, records))


@pytest.mark.parametrize("order", list(permutations((shared, half, entirely))), ids=lambda order: order[0].__name__)
def test_how_a_record_is_told_says_nothing_of_a_program(order: tuple[Callable[[bytes, bytes], bytes], ...]) -> None:
    """Right and wrong programs of one class, in whatever way and order: each is judged as if it were alone."""
    right = expected_records(_CASE)
    wrong = [*right[:4], *(bytes(8) + record[8:] for record in right[4:])]  # the replies alone
    for records in (right, wrong, right[:5], right):
        for tell in order:
            alone = compare(played(replace(_CASE, trace=replace(_CASE.trace)), records, tell), lab().model)
            known = compare(played(_CASE, records, tell), lab().model)

            assert seen(known) == seen(alone)
            assert bool(known.deviations) is (records is wrong)
