"""Part 2.3 and Task 3: what a child of `fork_sequence` shares and what it owns."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.tests.paged_kv.played import Played


@pytest.mark.handout("Task 3/returns-child")
def test_fork_returns_the_child() -> None:
    """The reply is the sequence with the new id, not the parent."""
    played = Played()
    reply = played.do("create_sequence 1 5", "fork_sequence 1 9")

    assert ("seq", False, "Task 3/returns-child") == (reply.text, reply.refused, reply.clause)
    assert [1, 9] == played.ids()


@pytest.mark.handout("Task 3/parent")
def test_an_unknown_parent_is_refused() -> None:
    """fork_sequence returns NULL when the parent does not exist."""
    reply = Played().do("create_sequence 1 5", "fork_sequence 2 3")

    assert ("NULL", True, "Task 3/parent") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Task 3/unique-id")
@pytest.mark.parametrize("new", [1, 2])
def test_a_new_id_that_exists_is_refused(new: int) -> None:
    """fork_sequence returns NULL when new_seq_id is taken, by the parent itself too."""
    reply = Played().do("create_sequence 1 5", "create_sequence 2 5", f"fork_sequence 1 {new}")

    assert ("NULL", True, "Task 3/unique-id") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Part 2.3/shared-prefix", "Task 3/copy-tables")
def test_the_child_maps_the_same_blocks() -> None:
    """Sequences that share a prompt share its physical blocks."""
    played = Played(20)
    played.do("create_sequence 1 16", "create_sequence 2 300", "fork_sequence 2 3")

    assert {logical: logical + 1 for logical in range(19)} == played.mapped(3)
    assert played.sequence(2).block_table == played.sequence(3).block_table


@pytest.mark.handout("Task 3/copy-tables")
def test_the_child_has_the_holes_of_its_parent() -> None:
    """Each L2 table has its copy in the same L1 slot, unmapped entries included."""
    played = Played(3)
    played.do("create_sequence 1 48", "unmap 1 1", "move_l2 1 0 5")
    played.do("fork_sequence 1 2")

    assert {80: 0, 82: 2} == played.mapped(2)
    assert [5] == played.l2_slots(2)


@pytest.mark.handout("Task 3/copy-tables")
def test_an_l2_table_without_blocks_is_copied_too() -> None:
    """The handout asks for a child table for each non-NULL parent table."""
    played = Played(1)
    played.do("create_sequence 1 1", "unmap 1 0", "fork_sequence 1 2")

    assert [0] == played.l2_slots(2)
    assert {} == played.mapped(2)


@pytest.mark.handout("Part 2.3/ref-count", "Task 3/increment")
def test_every_inherited_block_counts_one_more() -> None:
    """Other blocks keep their count."""
    played = Played(5)
    played.do("create_sequence 1 16", "create_sequence 2 32", "fork_sequence 2 3", "fork_sequence 3 4")

    assert [1, 3, 3, 0, 0] == played.ref_count()


@pytest.mark.handout("Task 3/increment")
def test_a_fork_needs_no_free_block() -> None:
    """It succeeds in a full pool and takes nothing."""
    played = Played(2)

    assert "seq" == played.do("create_sequence 1 32", "fork_sequence 1 2").text
    assert ([2, 2], 0) == (played.ref_count(), played.free())


@pytest.mark.handout("Task 3/kv-count")
def test_the_child_has_the_parents_kv_count() -> None:
    """Also when the parent grew after its creation."""
    played = Played()
    played.do("create_sequence 1 5", "append_kv 1 0", "fork_sequence 1 2")

    assert (2, 6) == (played.sequence(2).seq_id, played.sequence(2).kv_count)


@pytest.mark.handout("Task 3/own-tables")
@pytest.mark.parametrize(("writer", "other"), [(1, 2), (2, 1)])
def test_parent_and_child_have_tables_of_their_own(writer: int, other: int) -> None:
    """What one of them maps later, the other does not."""
    played = Played(4)
    played.do("create_sequence 1 16", "fork_sequence 1 2", f"append_kv {writer} 5")

    assert {0: 0, 1: 1} == played.mapped(writer)
    assert {0: 0} == played.mapped(other)


@pytest.mark.handout("Task 3/own-tables")
def test_a_child_outlives_its_parent() -> None:
    """Freeing the parent leaves the child's tables and count alone."""
    played = Played(2)
    played.do("create_sequence 1 20", "fork_sequence 1 2", "free_sequence 1")

    assert ({0: 0, 1: 1}, 20) == (played.mapped(2), played.sequence(2).kv_count)


@pytest.mark.handout("Task 3/tail", "Part 2.5/intrusive-list")
def test_the_child_goes_to_the_tail() -> None:
    """Not behind its parent."""
    played = Played()
    played.do("create_sequence 1 1", "create_sequence 2 1", "fork_sequence 1 3")

    assert [1, 2, 3] == played.ids()


@pytest.mark.handout("Constraint 4/no-write")
def test_fork_does_not_write_the_pool() -> None:
    """Nothing is copied before somebody appends."""
    played = Played()
    played.do("create_sequence 1 5", "append_kv 1 77")
    before = played.words()
    played.do("fork_sequence 1 2")

    assert before == played.words()
