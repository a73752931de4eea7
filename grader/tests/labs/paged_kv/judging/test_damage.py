"""Records of any content: they are judged, or `CannotGoOn` says that they cannot be."""

from __future__ import annotations

from array import array

from hypothesis import given, settings, strategies as st

from grader.labs.paged_kv.judging.record import RecordState
from grader.tests.labs.paged_kv.judging.layout import pack
from grader.tests.labs.paged_kv.judging.played import Played
from reference.oracle import CannotGoOn, CannotPoke
from reference.tests.paged_kv.played import GUARD_WORDS, operation

SETTING = [
    "@2 llm_init 64",
    "@2 create_sequence 1 5",
    "create_sequence 1 20",
    "fork_sequence 1 2",
    "append_kv 2 9",
]
LINES = [
    "create_sequence 3 5",
    "create_sequence 3 40",
    "free_sequence 1",
    "fork_sequence 1 3",
    "append_kv 1 7",
    "append_kv 9 7",
    "llm_destroy",
    "@2 append_kv 1 7",
    "move_l2 1 0 3",
    "unmap 2 1",
    "set_kv_count 1 5",
]
WORDS = [0, 1, 2, 3, 4, 5, 6, -1, -2, 63, 64, 4096, 2**31 - 1, -(2**31), -1515870811]
"""Words as they turn up: counts, pointers, ids, the extremes, and 0xA5A5A5A5 of fresh memory."""


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Up to three words of a record, by their place from 0 to 1, and what stands there instead."""
    count = draw(st.integers(1, 3))
    return [(draw(st.integers(0, 119)), draw(st.sampled_from(WORDS))) for _ in range(count)]


def damaged(record: bytes, damage: list[tuple[int, int]]) -> bytes:
    """The record with other words in some places; reply and management come before the first region."""
    words = array("i", record)
    for place, word in damage:
        words[place % len(words)] = word
    return words.tobytes()


def flags(state: RecordState) -> set[int]:
    """The places of engine_lives, pool_pointer_ok and mirrored, which have two values only."""
    places = set()
    right = array("i", pack(state))
    for slot in state.slots:
        if slot.engine is not None:
            slot.engine.pool_ok, slot.engine.mirrored = 0, 0
            changed = array("i", pack(state))
            slot.engine.pool_ok, slot.engine.mirrored = 1, 1
            ok, mirrored = (place for place in range(len(right)) if right[place] != changed[place])
            places |= {ok - 1, ok, mirrored}
    return places


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(damage=damages(), line=st.sampled_from(LINES))
def test_no_state_of_a_program_ends_in_another_error(damage: list[tuple[int, int]], line: str) -> None:
    """From damaged bytes the model goes on, or says that it cannot."""
    played = Played(4, engines=2)
    played.do(*SETTING)
    before = damaged(played.record(), damage)
    try:
        played.model.judge(before, operation(line), before)
    except (CannotGoOn, CannotPoke):
        return


@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(place=st.integers(0, 10**6), word=st.sampled_from(WORDS), line=st.sampled_from(LINES))
def test_no_wrong_word_is_overlooked(place: int, word: int, line: str) -> None:
    """One word that is not as it should be gives a difference, or bytes that are no record."""
    played = Played(4, engines=2)
    played.do(*SETTING)
    before = played.record()
    played.do(line)
    right = played.record()
    place %= len(right) // 4
    if place in flags(played.state):
        word &= 1
    actual = damaged(right, [(place, word)])
    try:
        judgement = played.model.judge(before, operation(line), actual)
    except CannotGoOn:
        return

    assert (actual != right) is bool(judgement.differences)


def test_guards_belong_to_the_record() -> None:
    """The places above reach the whole record: management first, then a region with its guards."""
    played = Played(4, engines=2)
    played.do(*SETTING)

    assert len(played.record()) // 4 > 120 + 2 * GUARD_WORDS
