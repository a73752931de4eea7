"""Part 2.2, 2.3 and Task 4: where `append_kv` writes, which block it takes, and when it refuses."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.paged_kv.pool import GUARD_WORDS
from reference.tests.paged_kv.played import Played


def changed(before: list[int], after: list[int]) -> dict[int, int]:
    """Word of the pool -> its new content, of the words that differ."""
    return {place - GUARD_WORDS: new for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}


@pytest.mark.handout("Task 4/count-returns")
def test_append_counts_and_returns_0() -> None:
    """kv_count goes up by one with every record."""
    played = Played()
    played.do("create_sequence 1 5")
    reply = played.do("append_kv 1 7", "append_kv 1 8")

    assert ("0", False, "Task 4/count-returns") == (reply.text, reply.refused, reply.clause)
    assert 7 == played.sequence(1).kv_count


@pytest.mark.handout("Task 4/unknown")
def test_an_unknown_sequence_is_refused() -> None:
    """append_kv returns -1 when the id does not exist."""
    reply = Played().do("create_sequence 1 5", "append_kv 2 7")

    assert ("-1", True, "Task 4/unknown") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Task 4/full", "Part 2.2/capacity")
def test_record_4096_is_refused() -> None:
    """append_kv returns -1 when the logical index is 256, though a block is free."""
    played = Played(257)
    reply = played.do("create_sequence 1 4095", "append_kv 1 7", "append_kv 1 8")

    assert ("-1", True, "Task 4/full") == (reply.text, reply.refused, reply.clause)
    assert 4096 == played.sequence(1).kv_count


@pytest.mark.handout("Part 2.2/logical-index", "Part 2.2/offset", "Part 2.2/table-walk")
@pytest.mark.parametrize(
    ("kv_count", "place"),
    [
        (0, (0, 0, 0, 0)),
        (15, (0, 15, 0, 0)),
        (16, (1, 0, 0, 1)),
        (613, (38, 5, 2, 6)),
        (4095, (255, 15, 15, 15)),
    ],
)
def test_the_place_of_a_record_is_as_in_the_handouts_example(kv_count: int, place: tuple[int, int, int, int]) -> None:
    """Record 613 is number 5 of logical block 38, which stands at block_table[2][6]."""
    played = Played(256)
    played.do("create_sequence 1 4096", f"set_kv_count 1 {kv_count}", "append_kv 1 7")
    logical, offset, l1, l2 = place

    table = played.sequence(1).block_table[l1]

    assert table is not None
    assert table[l2] == logical  # of the first sequence each block has its logical number
    assert played.block(logical)[offset] == 7


@pytest.mark.handout("Part 2.2/physical-address", "Part 2.2/logical-index", "Part 2.2/offset", "Task 4/store")
@pytest.mark.parametrize("kv_count", [1, 15, 17, 255, 613, 639])
def test_a_record_is_stored_at_its_own_word_and_nowhere_else(kv_count: int) -> None:
    """Block b starts 64 * b bytes after pool_base_ptr; no other word of the pool changes."""
    played = Played(60)
    played.do("create_sequence 9 112", f"create_sequence 1 {kv_count}")
    before = played.words()
    played.do("append_kv 1 -77")

    assert {16 * (7 + kv_count // 16) + kv_count % 16: -77} == changed(before, played.words())


@pytest.mark.handout("Task 4/store", "Part 2.1/kv-per-block")
@pytest.mark.parametrize("kv_data", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_every_int_can_be_stored(kv_data: int) -> None:
    """A KV record is one int of 4 bytes."""
    played = Played(1)
    played.do("create_sequence 1 3", f"append_kv 1 {kv_data}")

    assert kv_data == played.block(0)[3]


@pytest.mark.handout("Task 4/exclusive", "Constraint 4/no-write")
def test_an_exclusive_block_is_written_in_place() -> None:
    """ref_count 1 needs no block, so a full pool is no obstacle."""
    played = Played(1)
    reply = played.do("create_sequence 1 5", "append_kv 1 7")

    assert "0" == reply.text
    assert ({0: 0}, [1], 0) == (played.mapped(1), played.ref_count(), played.free())


@pytest.mark.handout("Task 4/needs-new-page", "Task 4/new-page", "Constraint 3/first-fit", "Constraint 5/decrement")
def test_a_full_last_block_makes_append_take_the_first_free_one() -> None:
    """The new page is mapped, given ref_count 1, and counted."""
    played = Played(4)
    played.do("create_sequence 1 16", "create_sequence 2 16", "create_sequence 3 16", "free_sequence 1")
    played.do("append_kv 2 7")

    assert ({0: 1, 1: 0}, [1, 1, 1, 0], 1) == (played.mapped(2), played.ref_count(), played.free())
    assert 7 == played.block(0)[0]


@pytest.mark.handout("Task 4/l2-missing")
def test_a_missing_l2_table_is_allocated_with_minus_ones() -> None:
    """Record 256 needs the second L2 table, in which only its own block is mapped."""
    played = Played(17)
    played.do("create_sequence 1 256", "append_kv 1 7")

    assert [16] + [-1] * 15 == played.sequence(1).block_table[1]


@pytest.mark.handout("Task 4/needs-new-page", "Task 4/store")
def test_an_unmapped_slot_in_the_middle_of_a_block_gets_a_new_page() -> None:
    """The record goes to its offset; the other 15 words of the new block stay untouched."""
    played = Played(3)
    played.do("create_sequence 1 20", "unmap 1 1")
    before = played.words()
    played.do("append_kv 1 7")

    assert {16 + 4: 7} == changed(before, played.words())


@pytest.mark.handout("Task 4/oom")
@pytest.mark.parametrize(
    "lines",
    [
        ["create_sequence 1 16"],
        ["create_sequence 1 5", "fork_sequence 1 2"],
        ["create_sequence 1 5", "set_kv_count 1 261"],
    ],
)
def test_an_append_without_a_free_block_changes_nothing(lines: list[str]) -> None:
    """When a block is needed and none is free, append_kv returns -1, without a table for it either."""
    played = Played(1)
    played.do(*lines)
    before = played.state()
    reply = played.do("append_kv 1 7")

    assert ("-1", True, "Task 4/oom") == (reply.text, reply.refused, reply.clause)
    assert before == played.state()


@pytest.mark.handout("Part 2.2/capacity", "Task 4/l2-missing")
def test_a_sequence_grows_to_256_blocks_record_by_record() -> None:
    """Every 16th append takes a block, every 256th a table."""
    played = Played(256)
    played.do("create_sequence 1 1")
    replies: list[str] = []
    grown = []
    for number in range(1, 4096):
        replies.append(played.do(f"append_kv 1 {number}").text)
        grown.append((256 - played.free(), len(played.l2_slots(1))))

    assert {"0"} == set(replies)
    assert [(number // 16 + 1, number // 256 + 1) for number in range(1, 4096)] == grown
    assert list(range(1, 4096)) == played.words()[GUARD_WORDS + 1 : -GUARD_WORDS]
