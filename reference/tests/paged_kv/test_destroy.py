"""Task 5: what `llm_destroy` ends and what it leaves."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.tests.paged_kv.played import Played


@pytest.mark.handout("Task 5/returns")
@pytest.mark.parametrize("lines", [["create_sequence 1 1"], ["create_sequence 1 1", "free_sequence 1"]])
def test_destroy_returns_0(lines: list[str]) -> None:
    """With and without sequences left."""
    reply = Played().do(*lines, "llm_destroy")

    assert ("0", False, "Task 5/returns") == (reply.text, reply.refused, reply.clause)


@pytest.mark.handout("Task 5/all-sequences")
def test_destroy_frees_every_sequence() -> None:
    """Holes and shared blocks included, from the first to the last."""
    played = Played(4)
    engine = played.engine()
    played.do("create_sequence 1 16", "fork_sequence 1 2", "create_sequence 3 16", "move_l2 3 0 4")
    played.do("llm_destroy")

    assert ([], [0] * 4, 4) == (engine.active_seqs, engine.ref_count, engine.free_local_blocks)


def test_the_engine_is_gone() -> None:
    """Its pool stays."""
    played = Played()
    played.do("create_sequence 1 1", "llm_destroy")

    assert played.state()["1"]["engine"] is None


@pytest.mark.handout("Task 5/pool", "Constraint 4/no-write")
def test_the_pool_is_left_as_it_was() -> None:
    """It belongs to the caller, with all that was stored in it."""
    played = Played()
    played.do("create_sequence 1 5", "append_kv 1 77")
    before = played.words()
    played.do("llm_destroy")

    assert 77 == played.block(0)[5]
    assert before == played.words()


@pytest.mark.handout("Part 2.3/global-state")
def test_another_engine_lives_on() -> None:
    """Destroying engine @1 leaves @2 and its sequences alone."""
    played = Played()
    played.do("@2 llm_init 128", "@2 create_sequence 1 20", "create_sequence 1 5")
    before = played.state()["2"]
    played.do("llm_destroy")

    assert before == played.state()["2"]


def test_a_new_engine_starts_from_a_fresh_pool() -> None:
    """Nothing of the destroyed one is left."""
    played = Played(2)
    fresh = played.state()
    played.do("create_sequence 1 5", "append_kv 1 77", "llm_destroy", "llm_init 128")

    assert fresh == played.state()
