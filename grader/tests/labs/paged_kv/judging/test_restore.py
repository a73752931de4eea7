"""PagedKV.restore: the state of any program is taken over, unless it is too broken to go on from."""

from __future__ import annotations

from array import array

import pytest

from grader.labs.paged_kv.judging.record import Pointer, RecordState
from grader.tests.labs.paged_kv.judging.edits import Edit, engine_of, sequence_of
from grader.tests.labs.paged_kv.judging.layout import pack
from grader.tests.labs.paged_kv.judging.played import Played
from reference.oracle import CannotGoOn
from reference.tests.paged_kv.played import operation


def program(edit: Edit) -> bytes:
    """A program's record after three calls, wrong where `edit` made it wrong."""
    played = Played(4, engines=2)
    played.do("@2 llm_init 128", "@2 create_sequence 1 5", "create_sequence 1 20", "fork_sequence 1 2")
    state = played.state
    edit(state)
    return pack(state)


def broken_states() -> dict[str, tuple[Edit, str]]:
    """States from which nothing follows unless the reference's is known, and why."""

    def no_counts(state: RecordState) -> None:
        engine_of(state).ref_pointer, engine_of(state).ref_count = Pointer.SMALL, array("i")

    def no_list(state: RecordState) -> None:
        engine_of(state).list_pointer = Pointer.NULL

    def twins(state: RecordState) -> None:
        sequence_of(state, 2).seq_id = 1

    def negative(state: RecordState) -> None:
        sequence_of(state, 2).kv_count = -1

    def no_table(state: RecordState) -> None:
        sequence = sequence_of(state, 2)
        sequence.table, sequence.l1, sequence.tables = Pointer.NULL, [], []

    return {
        "ref_count": (no_counts, "ref_count is a pointer to an allocation that is too small"),
        "list": (no_list, "the walk along next from active_seqs meets NULL"),
        "twins": (twins, "two sequences have the id 1"),
        "kv_count": (negative, "sequence 2 has a negative kv_count"),
        "L1": (no_table, "sequence 2 has .* a block_table that cannot be read"),
    }


@pytest.mark.parametrize("name", broken_states())
@pytest.mark.parametrize("line", ["append_kv 1 7", "create_sequence 1 5", "@2 append_kv 1 7"])
def test_the_model_does_not_go_on_from_a_broken_state(name: str, line: str) -> None:
    """When nobody knows what should be there; restore and judge both say why."""
    edit, why = broken_states()[name]
    before = program(edit)
    model = Played(None, engines=2).model

    with pytest.raises(CannotGoOn, match=why):
        model.restore(before)
    with pytest.raises(CannotGoOn, match=why):
        model.judge(before, operation(line), before)


@pytest.mark.parametrize("line", ["create_sequence 3 5", "append_kv 2 7"])
def test_the_model_does_not_go_on_when_the_count_of_free_blocks_lies(line: str) -> None:
    """free_local_blocks is above 0, but no block has ref_count 0."""
    played = Played(2)
    played.do("create_sequence 1 20", "fork_sequence 1 2")
    state = played.state
    engine_of(state).free_local_blocks = 1

    with pytest.raises(CannotGoOn, match="no block has ref_count 0"):
        played.model.judge(pack(state), operation(line), pack(state))
