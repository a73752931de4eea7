"""What cannot be in a program's state counts as the reference's: it is told once, and the case goes on."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from grader.core.judgement import Judgement
from grader.labs.paged_kv.states import State
from grader.tests.labs.paged_kv.edits import FREED, SMALL, Edit, engine_of, facets, sequence_of
from grader.tests.labs.paged_kv.played import Played
from reference.oracle import CannotGoOn
from reference.tests.paged_kv.played import operation

SETTING = ["llm_init 384", "create_sequence 1 20", "create_sequence 2 5"]


def judged_in_order(lines: list[str], edit: Edit, *, first: int) -> list[Judgement]:
    """A program that is right but for an edit of its records from operation `first` (from 0) on."""
    program, judge = Played(None), Played(None).model
    before: bytes | None = None
    found = []
    for number, line in enumerate(lines):
        program.do(line)
        actual = program.edited(edit) if number >= first else program.record()
        found.append(judge.judge(before, operation(line), actual))
        before = actual
    return found


def negative(record: State) -> None:
    """As when kv_count was never set."""
    sequence_of(record, 2)["kv_count"] = -5


def no_block(record: State) -> None:
    """Block ids that are none, on both sides."""
    sequence_of(record, 1)["block_table"][0][:2] = [-9, 6]


def small_table(record: State) -> None:
    """An L1 table with room for half of its slots."""
    sequence_of(record, 2)["block_table"] = SMALL


def freed_l2(record: State) -> None:
    """An L2 table that was freed too early."""
    sequence_of(record, 2)["block_table"][0] = FREED


def small_counts(record: State) -> None:
    """An array of bytes where ints belong."""
    engine_of(record)["ref_count"] = SMALL


def open_list(record: State) -> None:
    """A list that ends in NULL."""
    engine_of(record)["next"] = None


def forgetful_list(record: State) -> None:
    """One that ends in NULL before its last sequence."""
    open_list(record)
    del engine_of(record)["sequences"][str(engine_of(record)["active_seqs"].pop())]


def twins(record: State) -> None:
    """Sequence 2 says that it is 1."""
    engine_of(record)["active_seqs"][1] = 1
    del engine_of(record)["sequences"]["2"]


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (negative, {"fields"}),
        (no_block, {"tables"}),
        (small_table, {"tables"}),
        (freed_l2, {"tables"}),
        (small_counts, {"ref_count"}),
        (open_list, {"list"}),
    ],
)
def test_what_cannot_be_is_told_when_it_comes_and_the_rest_is_followed(edit: Edit, told: set[str]) -> None:
    """The calls after it are right, also those that need the value. Who changes a broken list leaves it broken."""
    lines = [*SETTING, "append_kv 1 7", "free_sequence 1", "append_kv 9 7"]
    *_, first, append, free, refused = judged_in_order(lines, edit if edit is not no_block else _only(edit), first=2)

    assert told == set(facets(first))
    assert [[], []] == [facets(append), facets(refused)]
    assert told & {"list"} == set(facets(free))
    assert ("0", "0", "-1") == (append.expected.text, free.expected.text, refused.expected.text)


@pytest.mark.parametrize("edit", [forgetful_list, twins])
def test_a_sequence_that_a_broken_list_does_not_lead_to_is_not_there(edit: Edit) -> None:
    """It cannot be looked at: who says that an append to it was done is not believed."""
    *_, first, own, other = judged_in_order([*SETTING, "append_kv 1 7", "append_kv 2 7"], edit, first=2)

    assert "list" in facets(first)
    assert ("0", []) == (own.expected.text, facets(own))
    assert "-1" == other.expected.text
    assert {"reply", "failing"} <= set(facets(other))


def _only(edit: Edit) -> Edit:
    """As long as there is a sequence 1."""

    def while_there(record: State) -> None:
        if 1 in engine_of(record)["active_seqs"]:
            edit(record)

    return while_there


def test_a_sequence_that_a_refused_call_made_and_that_cannot_be_is_not_there() -> None:
    """As after a length of -5 that was accepted."""
    program, judge = Played(None), Played(None).model
    program.do(*SETTING)
    before = program.record()
    program.do("create_sequence 3 1")

    def short(record: State) -> None:
        sequence_of(record, 3)["kv_count"] = -5

    accepted = program.edited(short)
    refused = judge.judge(before, operation("create_sequence 3 -5"), accepted)

    assert {"reply", "failing"} == set(facets(refused))
    assert "seq" == judge.judge(accepted, operation("create_sequence 3 1"), accepted).expected.text


def test_negative_counts_of_references_are_believed_until_nothing_follows() -> None:
    """Such a block is not free for the program either; only when no free one is left the reference's counts hold."""

    def unset(record: State) -> None:
        engine_of(record)["ref_count"] = [count or -7 for count in engine_of(record)["ref_count"]]

    def one(record: State) -> None:
        engine_of(record)["ref_count"][3] = -1

    *_, create = judged_in_order(["llm_init 384", "create_sequence 1 5"], unset, first=0)
    *_, other = judged_in_order([*SETTING, "create_sequence 3 5"], one, first=2)

    assert ("seq", []) == (create.expected.text, facets(create))
    assert {"ref_count"} <= set(facets(other))


def test_counts_that_nobody_can_read_may_become_others() -> None:
    """Though a call must fail: what it has to leave alone is what the program had."""
    pointers = iter([None, SMALL, SMALL])

    def worse(record: State) -> None:
        engine_of(record)["ref_count"] = next(pointers)

    *_, changed, same = judged_in_order([*SETTING, "append_kv 9 7", "append_kv 9 7"], worse, first=2)

    assert (["failing"], []) == (facets(changed), facets(same))


def test_counts_from_which_nothing_follows_end_the_case() -> None:
    """Blocks are said to be free, and every one is in use."""

    def lies(record: State) -> None:
        engine_of(record)["ref_count"] = [1] * 6

    with pytest.raises(CannotGoOn, match="no block has ref_count 0"):
        judged_in_order(["llm_init 384", "create_sequence 1 5"], lies, first=0)
