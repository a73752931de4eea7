"""The pokes: what they change, that they keep the engine's invariants, and what they do not fit."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.oracle import CannotPoke
from reference.tests.paged_kv.played import Played


def test_a_poke_returns_nothing() -> None:
    """Its reply has no text and no clause."""
    played = Played()
    reply = played.do("create_sequence 1 5", "set_kv_count 1 7")

    assert ("", False, "") == (reply.text, reply.refused, reply.clause)


@pytest.mark.parametrize("target", [1, 8, 15])
def test_move_l2_hangs_a_table_into_another_slot(target: int) -> None:
    """Blocks keep their counts, their logical numbers move."""
    played = Played(3)
    played.do("create_sequence 1 40", f"move_l2 1 0 {target}")

    assert {16 * target + logical: logical for logical in range(3)} == played.mapped(1)
    assert [target] == played.l2_slots(1)
    assert ([1, 1, 1], 40) == (played.ref_count(), played.sequence(1).kv_count)


@pytest.mark.parametrize("line", ["move_l2 1 2 3", "move_l2 1 0 1", "move_l2 1 0 0"])
def test_move_l2_needs_a_table_and_an_empty_slot(line: str) -> None:
    """A table is never dropped and never invented."""
    played = Played(17)
    played.do("create_sequence 1 272")

    with pytest.raises(CannotPoke, match="move_l2 needs a table"):
        played.do(line)


def test_unmap_releases_the_block_of_its_entry() -> None:
    """The entry is -1, and the block is free again."""
    played = Played(3)
    played.do("create_sequence 1 48", "unmap 1 1")

    assert {0: 0, 2: 2} == played.mapped(1)
    assert ([1, 0, 1], 1, 48) == (played.ref_count(), played.free(), played.sequence(1).kv_count)


def test_unmap_of_a_shared_block_frees_nothing() -> None:
    """The other sequence still uses it."""
    played = Played(1)
    played.do("create_sequence 1 5", "fork_sequence 1 2", "unmap 1 0")

    assert ({}, {0: 0}) == (played.mapped(1), played.mapped(2))
    assert ([1], 0) == (played.ref_count(), played.free())


def test_unmap_leaves_the_l2_table_where_it_is() -> None:
    """An L2 table may be all -1."""
    played = Played(1)
    played.do("create_sequence 1 5", "unmap 1 0")

    assert [0] == played.l2_slots(1)


@pytest.mark.parametrize("line", ["unmap 1 1", "unmap 1 255", "unmap 1 16"])
def test_unmap_needs_a_mapped_block(line: str) -> None:
    """An entry of -1 and a missing table have nothing to release."""
    played = Played(2)
    played.do("create_sequence 1 5")

    with pytest.raises(CannotPoke, match="unmap needs a block"):
        played.do(line)


def test_unmap_needs_a_block_that_is_counted() -> None:
    """In a program's own state a mapped block may have ref_count 0; releasing it would break more."""
    played = Played(2)
    played.do("create_sequence 1 5")
    state = played.state()
    state["1"]["engine"]["ref_count"][0] = 0
    played.oracle.restore(state)

    with pytest.raises(CannotPoke, match="unmap needs a block"):
        played.do("unmap 1 0")


@pytest.mark.parametrize("kv_count", [0, 1, 16, 4095, 4096])
def test_set_kv_count_changes_the_count_alone(kv_count: int) -> None:
    """Also to places where nothing is mapped."""
    played = Played(2)
    played.do("create_sequence 1 5")
    before = played.state()
    played.do(f"set_kv_count 1 {kv_count}")

    assert kv_count == played.sequence(1).kv_count
    before["1"]["engine"]["sequences"]["1"]["kv_count"] = kv_count
    assert before == played.state()


@pytest.mark.parametrize("line", ["move_l2 2 0 1", "unmap 2 0", "set_kv_count 2 5"])
def test_a_poke_needs_its_sequence(line: str) -> None:
    """An unknown id is told by its number."""
    played = Played(2)
    played.do("create_sequence 1 5")

    with pytest.raises(CannotPoke, match="there is no sequence 2"):
        played.do(line)


@pytest.mark.parametrize("line", ["@2 move_l2 1 0 1", "@NULL unmap 1 0", "@2 set_kv_count 1 5"])
def test_a_poke_needs_its_engine(line: str) -> None:
    """Neither an engine that was never made nor NULL can be poked."""
    played = Played(2)

    with pytest.raises(CannotPoke, match="there is no engine @"):
        played.do("create_sequence 1 5", line)


@pytest.mark.parametrize("line", ["move_l2 1 3 4", "unmap 1 9", "set_kv_count 7 1"])
def test_a_poke_that_does_not_fit_changes_nothing(line: str) -> None:
    """The state stays as it was."""
    played = Played(2)
    played.do("create_sequence 1 5")
    before = played.state()

    with pytest.raises(CannotPoke):
        played.do(line)
    assert before == played.state()


@pytest.mark.parametrize("line", ["move_l2 1 0 16", "move_l2 1 -1 3", "unmap 1 256", "unmap 1 -1"])
def test_a_poke_outside_the_tables_does_not_fit(line: str) -> None:
    """There are 16 L1 slots and 256 logical blocks; a negative number is none of them."""
    played = Played(256)
    played.do("create_sequence 1 4096" if line.startswith("unmap") else "create_sequence 1 5")
    if "-1 3" in line:
        played.do("move_l2 1 0 15")

    with pytest.raises(CannotPoke):
        played.do(line)
