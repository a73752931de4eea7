"""Global Constraint 4: the bytes of the pools that each call may touch."""

from __future__ import annotations

import pytest

from grader.core.model import Access, MemorySpan
from grader.tests.labs.paged_kv.judging.played import Played, take_by
from reference.tests.paged_kv.played import TOUR, operation


def test_an_append_in_place_may_touch_its_slot() -> None:
    """4 bytes: record number 21 is slot 5 of logical block 1."""
    played = Played(4)
    played.do("create_sequence 1 21", "append_kv 1 7")

    assert played.model.allowed() == (MemorySpan(1, 64 + 5 * 4, 4, Access.WRITE),)


def test_an_append_on_a_new_page_may_touch_its_slot() -> None:
    """Nothing else of the new block is written (Constraint 4)."""
    played = Played(4)
    played.do("create_sequence 9 1", "create_sequence 1 16", "append_kv 1 7")

    assert played.model.allowed() == (MemorySpan(1, 2 * 64, 4, Access.WRITE),)


def test_a_copying_append_may_write_the_new_block_and_read_the_old_one() -> None:
    """All 64 bytes of both, of the engine that is called."""
    played = Played(4, engines=2)
    played.do("@2 llm_init 256", "@2 create_sequence 1 5", "@2 fork_sequence 1 2", "@2 append_kv 2 7")

    assert played.model.allowed() == (MemorySpan(2, 64, 64, Access.WRITE), MemorySpan(2, 0, 64, Access.READ))


@pytest.mark.parametrize("line", [line for line in TOUR if "append_kv" not in line] + ["append_kv 99 1"])
def test_nothing_else_may_touch_a_pool(line: str) -> None:
    """No other call, no poke, and no append that is refused."""
    played = Played(20, engines=2)
    for one in TOUR[: TOUR.index(line) if line in TOUR else -4]:
        played.do(one)
    played.do(line)

    assert played.model.allowed() == ()


def test_after_another_choice_the_block_chosen_is_allowed() -> None:
    """A program that took block 3 for its copy may write block 3."""
    wrong, right = Played(4), Played(4)
    for played in (wrong, right):
        played.do("create_sequence 1 5", "fork_sequence 1 2")
    before = right.model.record()
    take_by(wrong, lambda *_: [3])
    wrong.do("append_kv 2 7")
    judgement = right.model.judge(before, operation("append_kv 2 7"), wrong.model.record())

    assert {difference.facet for difference in judgement.differences} == {"choice"}
    assert right.model.allowed() == (MemorySpan(1, 3 * 64, 64, Access.WRITE), MemorySpan(1, 0, 64, Access.READ))
