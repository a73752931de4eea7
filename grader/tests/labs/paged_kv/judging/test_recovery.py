"""What cannot be in a program's state counts as the reference's: it is told once, and the case goes on."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array

import pytest

from grader.core.judgement import Judgement
from grader.labs.paged_kv.judging.record import Pointer, RecordState
from grader.tests.labs.paged_kv.judging.edits import Edit, engine_of, facets, l2_table, sequence_of
from grader.tests.labs.paged_kv.judging.layout import pack
from grader.tests.labs.paged_kv.judging.played import Played
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
        state = program.state
        if number >= first:
            edit(state)
        actual = pack(state)
        found.append(judge.judge(before, operation(line), actual))
        before = actual
    return found


def negative(state: RecordState) -> None:
    """As when kv_count was never set."""
    sequence_of(state, 2).kv_count = -5


def no_block(state: RecordState) -> None:
    """Block ids that are none, on both sides."""
    l2_table(state, 1)[:2] = array("i", [-9, 6])


def small_table(state: RecordState) -> None:
    """An L1 table with room for half of its slots."""
    sequence = sequence_of(state, 2)
    sequence.table, sequence.l1, sequence.tables = Pointer.SMALL, [], []


def freed_l2(state: RecordState) -> None:
    """An L2 table that was freed too early."""
    sequence = sequence_of(state, 2)
    sequence.l1[0], sequence.tables[0] = Pointer.FREED, None


def small_counts(state: RecordState) -> None:
    """An array of bytes where ints belong."""
    engine = engine_of(state)
    engine.ref_pointer, engine.ref_count = Pointer.SMALL, array("i")


def open_list(state: RecordState) -> None:
    """A list that ends in NULL."""
    engine_of(state).list_pointer = Pointer.NULL


def forgetful_list(state: RecordState) -> None:
    """One that ends in NULL before its last sequence."""
    open_list(state)
    engine_of(state).sequences.pop()


def twins(state: RecordState) -> None:
    """Sequence 2 says that it is 1."""
    sequence_of(state, 2).seq_id = 1


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

    def while_there(state: RecordState) -> None:
        if any(sequence.seq_id == 1 for sequence in engine_of(state).sequences):
            edit(state)

    return while_there


def test_a_sequence_that_a_refused_call_made_and_that_cannot_be_is_not_there() -> None:
    """As after a length of -5 that was accepted."""
    program, judge = Played(None), Played(None).model
    program.do(*SETTING)
    before = program.record()
    program.do("create_sequence 3 1")
    state = program.state
    sequence_of(state, 3).kv_count = -5
    accepted = pack(state)
    refused = judge.judge(before, operation("create_sequence 3 -5"), accepted)

    assert {"reply", "failing"} == set(facets(refused))
    assert "seq" == judge.judge(accepted, operation("create_sequence 3 1"), accepted).expected.text


def test_negative_counts_of_references_are_believed_until_nothing_follows() -> None:
    """Such a block is not free for the program either; only when no free one is left the reference's counts hold."""

    def unset(state: RecordState) -> None:
        counts = engine_of(state).ref_count
        counts[:] = array("i", [count or -7 for count in counts])

    def one(state: RecordState) -> None:
        engine_of(state).ref_count[3] = -1

    *_, create = judged_in_order(["llm_init 384", "create_sequence 1 5"], unset, first=0)
    *_, other = judged_in_order([*SETTING, "create_sequence 3 5"], one, first=2)

    assert ("seq", []) == (create.expected.text, facets(create))
    assert {"ref_count"} <= set(facets(other))


def test_counts_from_which_nothing_follows_end_the_case() -> None:
    """Blocks are said to be free, and every one is in use."""

    def lies(state: RecordState) -> None:
        engine_of(state).ref_count[:] = array("i", [1] * 6)

    with pytest.raises(CannotGoOn, match="no block has ref_count 0"):
        judged_in_order(["llm_init 384", "create_sequence 1 5"], lies, first=0)
