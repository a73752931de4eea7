"""Task 2: what `free_sequence` gives back."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.tests.paged_kv.played import Played


@pytest.mark.handout("Task 2/free-returns")
def test_free_returns_0() -> None:
    """An accepted call answers 0."""
    reply = Played().do("create_sequence 1 1", "free_sequence 1")

    assert ("0", False, "Task 2/free-returns") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Task 2/free-unknown")
@pytest.mark.parametrize("lines", [["free_sequence 2"], ["free_sequence 1", "free_sequence 1"]])
def test_an_unknown_id_is_refused(lines: list[str]) -> None:
    """free_sequence returns -1 for an id that never was and for one that is gone."""
    reply = Played().do("create_sequence 1 1", *lines)

    assert ("-1", True, "Task 2/free-unknown") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Task 2/free-detach", "Part 2.5/intrusive-list")
@pytest.mark.parametrize(("gone", "left"), [(1, [2, 3]), (2, [1, 3]), (3, [1, 2])])
def test_a_freed_sequence_is_off_the_list(gone: int, left: list[int]) -> None:
    """Its neighbours close up, whether it was first, middle or last."""
    played = Played()
    played.do("create_sequence 1 1", "create_sequence 2 1", "create_sequence 3 1", f"free_sequence {gone}")

    assert left == played.ids()


@pytest.mark.handout("Task 2/free-decrement", "Task 2/free-release", "Constraint 5/increment")
def test_the_last_reference_frees_a_block_and_an_earlier_one_does_not() -> None:
    """free_local_blocks goes up when a ref_count drops to 0, and only then."""
    played = Played(3)
    played.do("create_sequence 1 33", "fork_sequence 1 2")
    played.do("free_sequence 1")

    assert ([1, 1, 1], 0) == (played.ref_count(), played.free())

    played.do("free_sequence 2")

    assert ([0, 0, 0], 3) == (played.ref_count(), played.free())


@pytest.mark.handout("Task 2/free-decrement")
def test_shared_and_own_blocks_are_counted_each_for_itself() -> None:
    """A child that copied one block still shares the other."""
    played = Played(4)
    played.do("create_sequence 1 20", "fork_sequence 1 2", "append_kv 2 5")
    played.do("free_sequence 2")

    assert ([1, 1, 0, 0], 2) == (played.ref_count(), played.free())


@pytest.mark.handout("Task 2/free-all-slots")
@pytest.mark.parametrize("target", [1, 7, 15])
def test_freeing_walks_past_an_empty_l1_slot(target: int) -> None:
    """A NULL first-level slot does not end the walk."""
    played = Played(3)
    played.do("create_sequence 1 33", f"move_l2 1 0 {target}")
    played.do("free_sequence 1")

    assert 3 == played.free()


@pytest.mark.handout("Task 2/free-all-slots", "Task 2/free-decrement")
def test_freeing_walks_past_unmapped_entries() -> None:
    """An entry of -1 inside an L2 table neither counts nor ends the walk."""
    played = Played(3)
    played.do("create_sequence 1 48", "unmap 1 1")
    played.do("free_sequence 1")

    assert ([0, 0, 0], 3) == (played.ref_count(), played.free())


def test_freeing_an_l2_table_without_any_block_is_possible() -> None:
    """A table that is all -1 is unusual, but gives nothing back."""
    played = Played(1)
    reply = played.do("create_sequence 1 1", "unmap 1 0", "free_sequence 1")

    assert "0" == reply.text
    assert 1 == played.free()


@pytest.mark.handout("Constraint 4/no-write")
def test_free_does_not_write_the_pool() -> None:
    """What was stored in the blocks stays in them."""
    played = Played(3)
    played.do("create_sequence 1 15", "append_kv 1 77", "append_kv 1 78")
    before = played.words()
    played.do("free_sequence 1")

    assert before == played.words()


@pytest.mark.handout("Task 2/free-release", "Constraint 3/first-fit")
def test_a_released_block_is_the_next_one_taken() -> None:
    """A block that is free again competes by its number."""
    played = Played(3)
    played.do("create_sequence 1 16", "create_sequence 2 16", "free_sequence 1", "create_sequence 3 32")

    assert {0: 0, 1: 2} == played.mapped(3)
