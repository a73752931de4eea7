"""Notes beside differences: which sequence, engine, block or place a call changed instead of the right one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.labs.paged_kv.judging.record import RecordState, SequenceState
from grader.tests.labs.paged_kv.judging.edits import Edit, engine_of, judged, l2_table, sequence_of


def raise_other_count(state: RecordState) -> None:
    """The append counted for sequence 1 instead of sequence 2."""
    _count(state, 2, -1)
    _count(state, 1, 1)


def raise_parents_count(state: RecordState) -> None:
    """The fork changed its parent."""
    _count(state, 1, 1)


def blocks_of_another(state: RecordState) -> None:
    """The child shares the blocks of sequence 2, though its parent is sequence 1."""
    child, other = sequence_of(state, 4), sequence_of(state, 2)
    _put(state, replace(child, tables=[table[:] if table is not None else None for table in other.tables]))


def second_block_in_the_third_entry(state: RecordState) -> None:
    """Entry 1 is skipped."""
    table = l2_table(state, 4)
    table[1], table[2] = -1, table[1]


def other_engine(state: RecordState) -> None:
    """The first engine's call counted in the second."""
    engine_of(state, 2).free_local_blocks -= 1


def _count(state: RecordState, seq_id: int, more: int) -> None:
    sequence = sequence_of(state, seq_id)
    _put(state, replace(sequence, kv_count=sequence.kv_count + more))


def _put(state: RecordState, changed: SequenceState) -> None:
    sequences = engine_of(state).sequences
    sequences[[one.seq_id for one in sequences].index(changed.seq_id)] = changed


CHANGED: dict[str, tuple[str, Edit, str, str]] = {
    "another sequence": (
        "append_kv 2 7",
        raise_other_count,
        "sequence 1: kv_count",
        "Sequence 2 was asked for, but sequence 1 changed.",
    ),
    "the parent": (
        "fork_sequence 1 4",
        raise_parents_count,
        "sequence 1: kv_count",
        "Sequence 1 is the parent; a fork changes nothing in its parent's tables and fields.",
    ),
    "another parent": (
        "fork_sequence 1 4",
        blocks_of_another,
        "sequence 4: block_table[0][0]",
        "The child has the blocks of sequence 2; its parent is sequence 1.",
    ),
    "another entry": (
        "create_sequence 4 20",
        second_block_in_the_third_entry,
        "sequence 4: block_table[0][1]",
        "In sequence 4 block 4 was put into block_table[0][2]; it belongs in block_table[0][1].",
    ),
    "another engine": (
        "append_kv 2 7",
        other_engine,
        "engine @2: free_local_blocks",
        "The call went to engine @1, but engine @2 changed.",
    ),
    "another engine, from the second": (
        "@2 append_kv 1 7",
        lambda state: _count(state, 2, 1),
        "sequence 2: kv_count",
        "The call went to engine @2, but engine @1 changed.",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_changed_instead_is_said(name: str) -> None:
    """With what was asked for, beside the difference that shows it."""
    line, edit, field, note = CHANGED[name]
    notes = {difference.field: difference.note for difference in judged(line, edit).differences}

    assert notes.get(field) == note, notes
