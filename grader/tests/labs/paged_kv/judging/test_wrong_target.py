"""Notes beside differences: which sequence, engine, block or place a call changed instead of the right one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.labs.paged_kv.judging.record import RecordState, SequenceState
from grader.tests.labs.paged_kv.judging.edits import Edit, engine_of, judged, l2_table, nothing, sequence_of
from grader.tests.support.command import SAMPLES
from grader.tests.support.programs import graded_text, made


def raise_other_count(state: RecordState) -> None:
    """The append counted for sequence 1 instead of sequence 2."""
    _count(state, 2, -1)
    _count(state, 1, 1)


def raise_parents_count(state: RecordState) -> None:
    """The fork changed its parent."""
    _count(state, 1, 1)


def free_the_other(state: RecordState) -> None:
    """Sequence 1 stayed in the list, sequence 2 left it."""
    engine = engine_of(state)
    kept = sequence_of(state, 2)
    engine.sequences[0:0] = [replace(kept, seq_id=1)]
    engine.sequences.remove(kept)


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


def test_another_sequence_that_left_the_list_is_named() -> None:
    """And that the right one is still there."""
    notes = {difference.note for difference in judged("free_sequence 1", free_the_other).differences}

    assert "Sequence 1 was to be freed, which is still in the list; sequence 2 is gone from the list." in notes


@pytest.mark.parametrize("line", ["append_kv 2 7", "fork_sequence 1 4", "free_sequence 1", "create_sequence 4 20"])
def test_nothing_is_said_where_nothing_is_wrong(line: str) -> None:
    """A right call has no difference to speak of."""
    assert judged(line, nothing).differences == ()


def test_a_count_that_is_wrong_in_the_right_sequence_is_no_mix_up() -> None:
    """There the difference says all."""
    differences = judged("append_kv 2 7", lambda state: _count(state, 2, 1)).differences

    assert {difference.field for difference in differences} == {"sequence 2: kv_count"}
    assert {difference.note for difference in differences} == {""}


def test_a_block_in_use_is_not_called_free() -> None:
    """The last block of a pool without a free one is the sequence's own; its table was lost."""
    sample = SAMPLES / "run_time_error" / "append_makes_table_by_its_place" / "llm_memory.c"
    calls = "create_sequence 1 256 -> seq; append_kv 1 1 -> 0; append_kv 1 2 -> 0"
    record = graded_text(sample.read_text(encoding="utf-8"), made("full", calls, header="pool_blocks = 17"))

    assert record.first_cause is not None
    assert "block_table[1][0]" in record.first_cause.summary
    assert "free" not in record.first_cause.hint
