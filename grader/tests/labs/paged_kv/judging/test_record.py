"""The record: its documented layout, decoding, and what damaged bytes lead to."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array

import pytest

from grader.labs.paged_kv.judging.record import Pointer, ReplyKind, decode, pool_word_name
from grader.tests.labs.paged_kv.judging.layout import pack, pack_words
from grader.tests.labs.paged_kv.judging.played import Played
from reference.tests.paged_kv.played import TOUR

OK, NULL = Pointer.OK, Pointer.NULL


@pytest.mark.parametrize("count", range(len(TOUR) + 1))
def test_decoding_and_packing_give_the_record_back(count: int) -> None:
    """The layout that record.py documents is the one it writes and reads."""
    played = Played(6, engines=2)
    if count:
        played.do(*TOUR[:count])

    assert played.record() == pack(played.state)


def test_a_record_is_laid_out_as_documented() -> None:
    """Word by word: reply, slot, engine, counts, list, sequence, tables, region."""
    played = Played(2)
    played.do("create_sequence 7 17")
    table = [0, 1] + [-1] * 14

    assert [
        *(ReplyKind.SEQUENCE, 7),
        *(128, 1),
        *(1, 2, 0, OK),
        *(1, 1),
        *(OK, 1, 1),
        *(7, 17, OK, OK, *[NULL] * 15, *table),
        *played.words(),
    ] == array("i", played.record()).tolist()


def test_the_numbers_of_replies_and_pointers_are_fixed() -> None:
    """The driver writes the same ones, in C."""
    assert ["NOTHING", "INT", "NULL", "SEQUENCE", "ENGINE", "STRAY"] == [ReplyKind(n).name for n in range(6)]
    assert ["OK", "NULL", "STRAY", "SMALL", "FREED", "SHARED"] == [Pointer(n).name for n in range(6)]


def test_a_slot_without_a_pool_is_two_words() -> None:
    """pool_bytes is -1 and no engine lives."""
    assert pack_words([0, 0, -1, 0, -1, 0]) == Played(None, engines=2).record()


def test_a_slot_keeps_its_pool_when_its_engine_is_gone() -> None:
    """The pool belongs to the framework."""
    played = Played(1)
    played.do("llm_destroy")

    assert [1, 0, 64, 0, *played.words()] == array("i", played.record()).tolist()


def test_slots_stand_in_the_order_of_their_numbers() -> None:
    """Whichever engine was made first."""
    played = Played(None, engines=2)
    played.do("@2 llm_init 128", "llm_init 64")

    assert [64, 128] == [slot.pool_bytes for slot in played.state.slots]


@pytest.mark.parametrize("pointer", [NULL, Pointer.STRAY, Pointer.SMALL, Pointer.FREED, Pointer.SHARED])
def test_unreadable_counts_are_left_out(pointer: Pointer) -> None:
    """ref_count follows only a pointer that is OK."""
    played = Played(2)
    state = played.state
    assert state.slots[0].engine is not None
    state.slots[0].engine.ref_pointer = pointer
    state.slots[0].engine.ref_count = array("i")

    assert state == decode(pack(state), 1)


@pytest.mark.parametrize("pointer", list(Pointer))
def test_tables_follow_readable_pointers_only(pointer: Pointer) -> None:
    """OK and SHARED can be read, the others cannot."""
    played = Played(2)
    played.do("create_sequence 1 5")
    state = played.state
    assert state.slots[0].engine is not None
    sequence = state.slots[0].engine.sequences[0]
    sequence.l1[0] = pointer
    sequence.tables[0] = sequence.tables[0] if pointer.readable else None

    assert (pointer in {Pointer.OK, Pointer.SHARED}) is pointer.readable
    assert state == decode(pack(state), 1)


@pytest.mark.parametrize("pointer", list(Pointer))
def test_an_unreadable_l1_table_has_no_slots(pointer: Pointer) -> None:
    """Then a sequence is its two numbers and the pointer."""
    played = Played(2)
    played.do("create_sequence 1 5")
    state = played.state
    assert state.slots[0].engine is not None
    sequence = state.slots[0].engine.sequences[0]
    sequence.table = pointer
    if not pointer.readable:
        sequence.l1, sequence.tables = [], []

    assert state == decode(pack(state), 1)


def test_a_record_cut_anywhere_is_refused() -> None:
    """Every proper beginning of a record raises ValueError."""
    played = Played(2)
    played.do("create_sequence 1 20")
    record = played.record()

    for length in range(len(record)):
        with pytest.raises(ValueError, match="a record ends early"):
            decode(record[:length], 1)


@pytest.mark.parametrize("more", [b"\0", b"\0\0\0\0", bytes(64)])
def test_a_record_with_bytes_left_over_is_refused(more: bytes) -> None:
    """Also when they are zeros."""
    with pytest.raises(ValueError, match="a record has bytes left over"):
        decode(Played(2).record() + more, 1)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_record_of_another_number_of_engines_is_refused(slots: int) -> None:
    """The trace says how many there are."""
    with pytest.raises(ValueError, match="a record"):
        decode(Played(2, engines=2).record(), slots)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        pytest.param(0, 6, id="reply_kind"),
        pytest.param(0, -1, id="reply_kind negative"),
        pytest.param(2, 2**31 - 1, id="pool_bytes large"),
        pytest.param(2, -1, id="pool_bytes of no pool"),
        pytest.param(2, -64, id="pool_bytes negative"),
        pytest.param(3, 2, id="engine_lives"),
        pytest.param(3, -1, id="engine_lives negative"),
        pytest.param(7, 6, id="ref_pointer"),
        pytest.param(10, 6, id="list_pointer"),
        pytest.param(12, 2**31 - 1, id="length large"),
        pytest.param(12, -1, id="length negative"),
        pytest.param(15, 6, id="table_pointer"),
        pytest.param(16, -1, id="l2_pointer"),
    ],
)
def test_a_damaged_word_is_refused(word: int, value: int) -> None:
    """Numbers that no record can hold there raise ValueError."""
    played = Played(2)
    played.do("create_sequence 1 20")
    words = array("i", played.record())
    words[word] = value

    with pytest.raises(ValueError):  # noqa: PT011 - the texts are those of several checks
        decode(words.tobytes(), 1)


def test_an_engine_without_a_pool_is_refused() -> None:
    """pool_bytes -1 and a living engine contradict each other."""
    words = [0, 0, -1, 1, 1, 2, 2, NULL, OK, 1, 0]

    with pytest.raises(ValueError):  # noqa: PT011 - any text will do
        decode(pack_words(words), 1)


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
def test_words_of_a_pool_are_named_by_block_and_slot(word: int, name: str) -> None:
    """In a pool of 140 bytes: two blocks, a tail of three words, and the guards around."""
    assert name == pool_word_name(word, 140)


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("create_sequence 9 1", (ReplyKind.SEQUENCE, 9)),
        ("fork_sequence 1 9", (ReplyKind.SEQUENCE, 9)),
        ("fork_sequence 9 1", (ReplyKind.NULL, 0)),
        ("append_kv 1 7", (ReplyKind.INT, 0)),
        ("free_sequence 9", (ReplyKind.INT, -1)),
        ("@2 llm_init 64", (ReplyKind.ENGINE, 0)),
        ("set_kv_count 1 7", (ReplyKind.NOTHING, 0)),
    ],
)
def test_a_reply_is_a_kind_and_a_value(line: str, reply: tuple[ReplyKind, int]) -> None:
    """Of a pointer to a sequence the value is the new id."""
    played = Played(4, engines=2)
    played.do("create_sequence 1 5", line)

    assert reply == (played.state.reply_kind, played.state.reply_value)
