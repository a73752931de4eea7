"""PagedKV.restore: the state of any program is taken over, unless it is too broken to go on from."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array

import pytest

from grader.labs.paged_kv.judging.record import Pointer, RecordState
from grader.tests.labs.paged_kv.judging.edits import Edit, engine_of, facets, sequence_of
from grader.tests.labs.paged_kv.judging.layout import pack
from grader.tests.labs.paged_kv.judging.played import Played
from reference.oracle import CannotGoOn, CannotPoke
from reference.tests.paged_kv.played import TOUR, operation


def program(edit: Edit) -> bytes:
    """A program's record after three calls, wrong where `edit` made it wrong."""
    played = Played(4, engines=2)
    played.do("@2 llm_init 128", "@2 create_sequence 1 5", "create_sequence 1 20", "fork_sequence 1 2")
    state = played.state
    edit(state)
    return pack(state)


def readable_damage() -> dict[str, Edit]:
    """States from which the handout still says what comes next."""

    def one_way(state: RecordState) -> None:
        engine_of(state).mirrored = 0

    def other_pool(state: RecordState) -> None:
        engine_of(state).pool_ok = 0

    def shared_l2(state: RecordState) -> None:
        sequence_of(state, 2).l1[0] = Pointer.SHARED

    def shared_l1(state: RecordState) -> None:
        sequence_of(state, 2).table = Pointer.SHARED

    def total(state: RecordState) -> None:
        engine_of(state).total_local_blocks = 64

    def free(state: RecordState) -> None:
        engine_of(state).free_local_blocks = 1

    def ref_count(state: RecordState) -> None:
        engine_of(state).ref_count[0] = 1

    def kv_count(state: RecordState) -> None:
        sequence_of(state, 2).kv_count = 4099

    return {
        "prev pointers": one_way,
        "pool_base_ptr": other_pool,
        "shared L2 table": shared_l2,
        "shared L1 table": shared_l1,
        "total_local_blocks": total,
        "free_local_blocks": free,
        "ref_count": ref_count,
        "kv_count": kv_count,
    }


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


@pytest.mark.parametrize("count", range(1, len(TOUR) + 1))
def test_restoring_a_record_is_the_identity(count: int) -> None:
    """The record of the restored model is the very same, and so is what it does next."""
    played, other = Played(6, engines=2), Played(None, engines=2)
    played.do(*TOUR[:count])
    other.model.restore(played.record())

    assert played.record() == other.record()
    assert played.do("append_kv 2 -9") == other.do("append_kv 2 -9")
    assert played.record() == other.record()


def test_restoring_forgets_what_was_before() -> None:
    """Engines, pools and reply are those of the record."""
    played, empty = Played(2, engines=2), Played(None, engines=2)
    played.do("@2 llm_init 64")
    played.model.restore(empty.record())

    assert empty.record() == played.record()
    assert "Constraint 1/null-engine" == played.do("create_sequence 1 1").clause


@pytest.mark.parametrize("kv_count", [0, 1, 4096])
def test_any_length_that_a_sequence_can_have_is_taken_over(kv_count: int) -> None:
    """Zero records too, after a poke."""
    played = Played(2)
    played.do("create_sequence 1 5", f"set_kv_count 1 {kv_count}")
    record = played.record()
    played.model.restore(record)

    assert record == played.record()


def test_a_wrong_number_of_blocks_is_told_once() -> None:
    """An accepted call leaves total_local_blocks as the program had it."""

    def total(state: RecordState) -> None:
        engine_of(state).total_local_blocks = 64

    before = program(total)
    right = Played(None, engines=2)
    right.model.restore(program(lambda _: None))
    right.do("fork_sequence 1 3")
    state = right.state
    total(state)

    assert [] == facets(right.model.judge(before, operation("fork_sequence 1 3"), pack(state)))


def test_a_restored_model_does_not_change_the_record_it_came_from() -> None:
    """It works on copies."""
    played = Played(2)
    record = bytes(played.record())
    played.model.restore(record)
    played.do("create_sequence 1 5", "append_kv 1 7")
    played.model.restore(record)

    assert record == played.record()


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


def astray(state: RecordState) -> None:
    """An unused L1 slot of sequence 2 that was never set."""
    sequence_of(state, 2).l1[3] = Pointer.STRAY


def too_large(state: RecordState) -> None:
    """An unused L2 entry of sequence 2 that is no block of the pool."""
    table = sequence_of(state, 2).tables[0]
    assert table is not None
    table[1] = 4


@pytest.mark.parametrize("edit", [astray, too_large])
def test_a_slot_that_leads_nowhere_counts_as_unused(edit: Edit) -> None:
    """One bad table entry stays wrong for its own rule, and the case goes on for all others."""
    before = program(edit)
    model = Played(None, engines=2).model
    judgement = model.judge(before, operation("append_kv 1 7"), before)

    assert {"tables"} <= {difference.facet for difference in judgement.differences}


@pytest.mark.parametrize("line", ["create_sequence 3 5", "append_kv 2 7"])
def test_the_model_does_not_go_on_when_the_count_of_free_blocks_lies(line: str) -> None:
    """free_local_blocks is above 0, but no block has ref_count 0."""
    played = Played(2)
    played.do("create_sequence 1 20", "fork_sequence 1 2")
    state = played.state
    engine_of(state).free_local_blocks = 1

    with pytest.raises(CannotGoOn, match="no block has ref_count 0"):
        played.model.judge(pack(state), operation(line), pack(state))


@pytest.mark.parametrize(
    ("line", "free", "count"),
    [
        pytest.param("fork_sequence 1 3", 2, 2**31 - 1, id="fork"),
        pytest.param("free_sequence 1", 2, -(2**31), id="free"),
        pytest.param("unmap 1 1", 2**31 - 1, 1, id="unmap"),
        pytest.param("append_kv 2 7", -(2**31), 2, id="append"),
    ],
)
def test_the_model_does_not_go_on_when_a_count_leaves_the_ints(line: str, free: int, count: int) -> None:
    """A program may write any int into its counters; adding one to the largest is no int of C any more."""

    def extreme(state: RecordState) -> None:
        engine_of(state).free_local_blocks = free
        engine_of(state).ref_count[1] = count

    before = program(extreme)

    with pytest.raises(CannotGoOn):
        Played(None, engines=2).model.judge(before, operation(line), before)


@pytest.mark.parametrize("place", ["before", "actual"])
def test_the_model_does_not_go_on_from_bytes_that_are_no_record(place: str) -> None:
    """Before the operation as after it."""
    played = Played(2)
    record = played.record()
    before, actual = (record[:-4], record) if place == "before" else (record, record + b"\0")

    with pytest.raises(CannotGoOn, match="a record"):
        played.model.judge(before, operation("append_kv 1 7"), actual)


def test_judging_a_poke_that_does_not_fit_the_program_says_so() -> None:
    """The case ends there."""
    played = Played(2)

    with pytest.raises(CannotPoke):
        played.model.judge(played.record(), operation("unmap 1 0"), played.record())


@pytest.mark.parametrize("name", readable_damage())
@pytest.mark.parametrize("line", ["create_sequence 1 5", "append_kv 9 7", "@NULL append_kv 1 7"])
def test_a_refused_call_is_not_blamed_for_an_earlier_defect(name: str, line: str) -> None:
    """It left the program's own previous record as it was, however wrong that was."""
    before = program(readable_damage()[name])
    state = Played(None, engines=2)
    expected = state.model.judge(before, operation(line), before).expected
    after = (b"\2\0\0\0\0\0\0\0" if expected.text == "NULL" else b"\1\0\0\0\377\377\377\377") + before[8:]

    assert [] == facets(state.model.judge(before, operation(line), after))


@pytest.mark.parametrize("name", readable_damage())
def test_a_call_to_another_engine_is_not_blamed_for_an_earlier_defect(name: str) -> None:
    """Engine @1 is as wrong as before the call to @2, so @2 did nothing to it."""
    before = program(readable_damage()[name])
    right = Played(None, engines=2)
    right.model.restore(program(lambda _: None))
    right.do("@2 append_kv 1 7")
    state = right.state
    readable_damage()[name](state)

    assert [] == facets(right.model.judge(before, operation("@2 append_kv 1 7"), pack(state)))


def test_a_model_that_raised_is_of_use_again() -> None:
    """After a state that cannot be taken over, and after a poke that does not fit, in whatever order they are met."""
    played = Played(4)
    played.do("create_sequence 1 20")
    good, fork = played.record(), operation("fork_sequence 1 2")
    state = played.state
    engine_of(state).ref_pointer = Pointer.NULL
    played.do("fork_sequence 1 2")
    forked = played.record()

    for broken, what in ((pack(state), "fork_sequence 1 2"), (good, "unmap 1 200"), (pack(state), "unmap 1 0")):
        with pytest.raises((CannotGoOn, CannotPoke)):
            played.model.judge(broken, operation(what), forked)
        assert played.model.judge(good, fork, forked).differences == ()
        played.model.restore(good)
        assert played.record() == good
