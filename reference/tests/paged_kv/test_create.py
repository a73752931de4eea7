"""Part 2.2 and Task 2: what `create_sequence` maps, and what it refuses."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.tests.paged_kv.played import Played


@pytest.mark.handout("Task 2/returns-sequence")
def test_create_returns_the_new_sequence() -> None:
    """The reply of an accepted call is the sequence with the id that was asked for."""
    played = Played()
    reply = played.do("create_sequence 7 5")

    assert ("seq", False) == (reply.text, reply.refused)
    assert [7] == played.ids()


@pytest.mark.handout("Task 2/length")
@pytest.mark.parametrize("length", [0, -1, -16, -(2**31)])
def test_a_length_of_zero_or_less_is_refused(length: int) -> None:
    """create_sequence returns NULL when initial_kv_len <= 0."""
    reply = Played().do(f"create_sequence 1 {length}")

    assert ("NULL", True, "Task 2/length") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Task 2/unique-id")
@pytest.mark.parametrize("seq_id", [0, 1, 2**31 - 1])
def test_an_id_that_exists_is_refused(seq_id: int) -> None:
    """create_sequence returns NULL when seq_id already exists; zero is an id like any other."""
    reply = Played().do(f"create_sequence {seq_id} 1", f"create_sequence {seq_id} 1")

    assert ("NULL", True, "Task 2/unique-id") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Task 2/unique-id", "Part 2.3/global-state")
def test_an_id_of_another_engine_is_no_obstacle() -> None:
    """Ids are unique within one engine, and a freed id is unique again."""
    played = Played()

    assert "seq" == played.do("@2 llm_init 64", "create_sequence 1 1", "@2 create_sequence 1 1").text
    assert "seq" == played.do("free_sequence 1", "create_sequence 1 1").text


@pytest.mark.handout("Task 2/ceiling", "Part 2.1/kv-per-block")
@pytest.mark.parametrize(("length", "blocks"), [(1, 1), (15, 1), (16, 1), (17, 2), (32, 2), (33, 3), (4096, 256)])
def test_a_sequence_gets_a_block_for_each_16_records_begun(length: int, blocks: int) -> None:
    """The blocks needed are initial_kv_len / 16, rounded up."""
    played = Played(256)
    played.do(f"create_sequence 1 {length}")

    assert {logical: logical for logical in range(blocks)} == played.mapped(1)
    assert 256 - blocks == played.free()


@pytest.mark.handout("Task 2/too-long", "Part 2.2/capacity")
@pytest.mark.parametrize("length", [4097, 4112, 5000, 2**31 - 16])
def test_more_than_256_blocks_are_refused(length: int) -> None:
    """A sequence has at most 256 logical blocks, even when the pool has more."""
    reply = Played(300).do(f"create_sequence 1 {length}")

    assert ("NULL", True, "Task 2/too-long") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Part 2.2/capacity")
def test_256_blocks_fill_all_16_tables() -> None:
    """4096 records are the most that a sequence holds."""
    played = Played(256)

    assert "seq" == played.do("create_sequence 1 4096").text
    assert list(range(16)) == played.l2_slots(1)


@pytest.mark.handout("Task 2/no-room")
@pytest.mark.parametrize(("length", "text"), [(32, "seq"), (33, "NULL"), (64, "NULL")])
def test_more_blocks_than_are_free_are_refused(length: int, text: str) -> None:
    """create_sequence may take the last free block, but not one more."""
    played = Played(4)
    reply = played.do("create_sequence 1 32", f"create_sequence 2 {length}")

    assert text == reply.text
    assert ("Task 2/no-room" if text == "NULL" else "Task 2/returns-sequence") == reply.clause


@pytest.mark.handout("Constraint 2/phase-order")
@pytest.mark.parametrize(
    ("line", "clause"),
    [
        ("create_sequence 1 0", "Task 2/length"),
        ("create_sequence 1 5000", "Task 2/unique-id"),
        ("create_sequence 2 5000", "Task 2/too-long"),
        ("create_sequence 2 17", "Task 2/no-room"),
        ("@NULL create_sequence 1 0", "Constraint 1/null-engine"),
    ],
)
def test_checks_come_in_the_order_of_the_phases(line: str, clause: str) -> None:
    """Of several reasons to refuse, the earliest phase decides."""
    played = Played(2)
    played.do("create_sequence 1 16")

    assert clause == played.do(line).clause


@pytest.mark.handout("Part 2.2/l1-size", "Task 2/l1-null", "Task 2/l2-needed")
@pytest.mark.parametrize(("length", "tables"), [(1, 1), (256, 1), (257, 2), (513, 3)])
def test_l2_tables_exist_only_where_blocks_are_mapped(length: int, tables: int) -> None:
    """An L1 table has 16 slots, NULL behind the last block."""
    played = Played(64)
    played.do(f"create_sequence 1 {length}")

    assert 16 == len(played.sequence(1).block_table)
    assert list(range(tables)) == played.l2_slots(1)


@pytest.mark.handout("Part 2.2/l2-size", "Task 2/l2-minus-one", "Part 2.2/table-walk")
def test_entries_behind_the_last_block_are_minus_one() -> None:
    """An L2 table has 16 ints, each a block id or -1."""
    played = Played(64)
    played.do("create_sequence 1 289")

    assert [list(range(16)), [16, 17, 18] + [-1] * 13] == played.sequence(1).block_table[:2]


@pytest.mark.handout("Constraint 3/first-fit", "Task 2/map-blocks")
def test_blocks_are_taken_first_fit_and_mapped_in_order() -> None:
    """The lowest free block goes to the lowest logical block, holes first."""
    played = Played(6)
    played.do("create_sequence 1 16", "create_sequence 2 16", "create_sequence 3 16", "create_sequence 4 16")
    played.do("free_sequence 3", "free_sequence 1", "create_sequence 5 48")

    assert {0: 0, 1: 2, 2: 4} == played.mapped(5)
    assert [1, 1, 1, 1, 1, 0] == played.ref_count()


@pytest.mark.handout("Constraint 5/decrement", "Task 2/map-blocks")
def test_each_assigned_block_is_counted() -> None:
    """ref_count of a new block is 1, and free_local_blocks goes down by one for each."""
    played = Played(5)
    played.do("create_sequence 1 20", "create_sequence 2 1")

    assert [1, 1, 1, 0, 0] == played.ref_count()
    assert 2 == played.free()


@pytest.mark.handout("Task 2/kv-count")
@pytest.mark.parametrize("length", [1, 16, 17, 64])
def test_kv_count_is_the_initial_length(length: int) -> None:
    """Not the number of places in its blocks."""
    played = Played(4)
    played.do(f"create_sequence 1 {length}")

    assert length == played.sequence(1).kv_count


@pytest.mark.handout("Task 2/tail", "Part 2.5/intrusive-list")
def test_a_new_sequence_goes_to_the_tail() -> None:
    """The ring keeps the order of creation, whatever the ids."""
    played = Played(4)
    played.do("create_sequence 5 1", "create_sequence 1 1", "create_sequence 3 1")

    assert [5, 1, 3] == played.ids()


@pytest.mark.handout("Constraint 4/no-write")
def test_create_does_not_write_the_pool() -> None:
    """The magic words of its blocks stay as they are."""
    played = Played(4)
    before = played.words()
    played.do("create_sequence 1 50")

    assert before == played.words()


def test_a_pool_of_256_blocks_is_exactly_enough() -> None:
    """The longest sequence may take the whole pool, and nothing is left."""
    played = Played(256)

    assert "Task 2/no-room" == played.do("create_sequence 1 4096", "create_sequence 2 1").clause
