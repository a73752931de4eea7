"""Global Constraint 4: the bytes of the pools that each call may touch."""

from __future__ import annotations

from grader.core.model import Access, MemorySpan
from grader.tests.labs.paged_kv.judging.played import Played, take_by
from reference.tests.paged_kv.played import operation


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
