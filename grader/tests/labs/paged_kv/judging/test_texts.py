"""What a difference says: the place in the handout's words, what should be there, and what is."""

from __future__ import annotations

import pytest

from grader.labs.paged_kv.judging.record import Pointer, RecordState
from grader.tests.labs.paged_kv.judging import wrong
from grader.tests.labs.paged_kv.judging.edits import (
    Edit,
    judged,
    l2_table,
    sequence_of,
)
from grader.tests.labs.paged_kv.judging.played import Played


def forgets_to_write(state: RecordState) -> None:
    """The pool is as at first."""
    state.slots[0].region = Played(6).slot().region


def null_l1(state: RecordState) -> None:
    """The L1 table is NULL."""
    sequence = sequence_of(state, 1)
    sequence.table, sequence.l1, sequence.tables = Pointer.NULL, [], []


def small_l2(state: RecordState) -> None:
    """An L2 table has too little room."""
    sequence_of(state, 1).l1[0], sequence_of(state, 1).tables[0] = Pointer.SMALL, None


def filled(state: RecordState) -> None:
    """An entry that should be -1 is 0."""
    l2_table(state, 1)[5] = 0


@pytest.mark.parametrize(
    ("line", "edit", "texts"),
    [
        ("free_sequence 1", wrong.ref_count, ("ref_count[2]", "1", "0")),
        ("free_sequence 1", wrong.no_ref_count, ("ref_count", "an array of 6 ints", "NULL")),
        ("llm_destroy", wrong.lives_on, ("the engine", "does not exist", "exists")),
        ("fork_sequence 1 4", wrong.gone, ("the engine", "exists", "does not exist")),
        ("fork_sequence 1 4", wrong.pool_pointer, ("pool_base_ptr", "pool_addr", "another address")),
        ("append_kv 2 7", forgets_to_write, ("block 2, slot 5", "7", "untouched")),
        ("append_kv 3 7", wrong.kv_count, ("sequence 3: kv_count", "21", "22")),
        ("fork_sequence 1 4", null_l1, ("sequence 1: block_table", "an L1 table", "NULL")),
        ("fork_sequence 1 4", small_l2, ("sequence 1: block_table[0]", "an L2 table", "too small")),
        ("fork_sequence 1 4", wrong.more_l2, ("sequence 1: block_table[3]", "NULL", "an L2 table")),
        ("fork_sequence 1 4", wrong.other_block, ("sequence 1: block_table[0][1]", "block 1", "3")),
        ("fork_sequence 1 4", filled, ("sequence 1: block_table[0][5]", "-1", "0")),
        ("fork_sequence 1 4", wrong.order, ("the sequences along next", "1, 2, 3, 4", "4, 3, 2, 1")),
        (
            "fork_sequence 1 4",
            wrong.one_way,
            ("the sequences along prev", "4, 3, 2, 1", "not their mirror"),
        ),
        ("fork_sequence 1 4", wrong.endless, ("the walk along next", "comes back", "never comes back, after 4")),
        ("fork_sequence 1 4", wrong.astray, ("the walk along next", "comes back", "never allocated, after 4")),
        ("append_kv 2 7", wrong.reply, ("what append_kv returns", "0", "1")),
        ("create_sequence 4 5", wrong.reply, ("what create_sequence returns", "a pointer to the new sequence", "1")),
        ("@2 llm_init 64", wrong.reply, ("what llm_init returns", "an engine", "1")),
    ],
)
def test_a_difference_names_its_place_and_both_values(line: str, edit: Edit, texts: tuple[str, str, str]) -> None:
    """One difference, which a student can read."""
    setting = ["create_sequence 1 20", "create_sequence 2 5", "fork_sequence 1 3"]
    (difference,) = judged(line, edit, setting=setting if "@2" not in line else ["@2 llm_destroy"]).differences

    assert all(
        text in found
        for text, found in zip(texts, (difference.field, difference.expected, difference.actual), strict=True)
    ), difference
