"""PagedKV.judge: which block a call took is one difference of facet `choice`, and no other."""
# ruff: noqa: SIM300

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

import pytest

from grader.core.judgement import Difference
from grader.labs.paged_kv.judging.record import RecordState
from grader.tests.labs.paged_kv.judging.edits import Edit, engine_of, facets, judged, l2_table, sequence_of
from grader.tests.labs.paged_kv.judging.played import Played, take_by
from reference.paged_kv.engine import Engine
from reference.tests.paged_kv.played import operation

Choice: TypeAlias = "Callable[[Engine, int], list[int]]"


def free_blocks(engine: Engine) -> list[int]:
    """All free blocks, the lowest one first."""
    return [block for block, count in enumerate(engine.ref_count) if count == 0]


def last_fit(engine: Engine, needed: int) -> list[int]:
    """The highest free blocks, the highest one first."""
    return free_blocks(engine)[::-1][:needed]


def second_fit(engine: Engine, needed: int) -> list[int]:
    """All but the first free block as long as there are others."""
    first, *others = free_blocks(engine)
    return [*others, first][:needed]


def judged_choices(choose: Choice, *lines: str, blocks: int = 6) -> list[tuple[Difference, ...]]:
    """The differences of each line, played by a program that is right but for its choice of blocks."""
    program = Played(blocks)
    take_by(program, choose)
    judge = Played(blocks).model
    found = []
    for line in lines:
        before = program.record()
        program.do(line)
        found.append(judge.judge(before, operation(line), program.record()).differences)
    return found


@pytest.mark.parametrize("choose", [last_fit, second_fit])
@pytest.mark.parametrize(
    "line",
    ["create_sequence 4 5", "create_sequence 4 30", "append_kv 1 7", "append_kv 5 7", "append_kv 2 7"],
)
def test_another_free_block_is_one_choice_difference(choose: Choice, line: str) -> None:
    """In create, on a new page, with a new L2 table and in a copy: all else follows the program's choice."""
    setting = ["create_sequence 1 16", "create_sequence 2 5", "fork_sequence 2 3", "create_sequence 5 5"]
    *_, differences = judged_choices(choose, *setting, "set_kv_count 5 256", line, blocks=9)

    assert ["choice"] == [difference.facet for difference in differences]


def test_every_call_is_judged_from_the_blocks_that_the_program_really_has() -> None:
    """An earlier choice is no later difference."""
    lines = ["create_sequence 1 20", "append_kv 1 7", "fork_sequence 1 2", "append_kv 2 8", "free_sequence 1"]

    assert [1, 0, 0, 1, 0] == [len(found) for found in judged_choices(last_fit, *lines)]


def test_the_only_free_block_is_no_choice() -> None:
    """Last fit is first fit then."""
    assert [()] == judged_choices(last_fit, "create_sequence 1 16", blocks=1)


def test_a_choice_names_the_first_block_that_was_chosen_otherwise() -> None:
    """Here the second of three."""

    def swapped(engine: Engine, needed: int) -> list[int]:
        first, second, third = free_blocks(engine)[:needed]
        return [first, third, second]

    ((difference,),) = judged_choices(swapped, "create_sequence 7 40")

    assert "the block taken for logical block 1 of sequence 7" == difference.field
    assert ("block 1, the first with ref_count 0", "block 2") == (difference.expected, difference.actual)
    assert frozenset() == difference.tags


def test_the_choice_of_a_copy_is_tagged() -> None:
    """Copy-on-write has its own first-fit loop in many programs."""
    *_, (difference,) = judged_choices(last_fit, "create_sequence 1 5", "fork_sequence 1 2", "append_kv 2 7")

    assert {"copy-on-write"} == difference.tags


def test_the_model_is_first_fit_again_after_a_choice() -> None:
    """Judging another's choice leaves no trace."""
    program = Played(4)
    take_by(program, last_fit)
    judge = Played(4)
    before = program.record()
    program.do("create_sequence 1 5")
    judge.model.judge(before, operation("create_sequence 1 5"), program.record())
    judge.model.restore(before)
    judge.do("create_sequence 1 5")

    assert [0, *[-1] * 15] == list(judge.sequence(1).tables[0] or ())


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ([0, 3], "a block in use"),
        ([3, 3], "one block twice"),
        ([-1, 3], "unmapped"),
        ([3, 9], "no block at all"),
    ],
)
def test_tables_that_map_others_than_were_taken_are_wrong_tables(blocks: list[int], why: str) -> None:
    """The first free blocks are in use afterwards, so they were taken."""

    def maps(state: RecordState) -> None:
        table = sequence_of(state, 4).tables[0]
        assert table is not None
        table[:2] = array("i", blocks)

    found = facets(judged("create_sequence 4 30", maps))

    assert ("tables" in found, "choice" in found) == (True, False), why


def test_a_sequence_that_is_not_there_chose_nothing() -> None:
    """What it should have taken is then a matter of the list."""

    def forgotten(state: RecordState) -> None:
        engine = state.slots[0].engine
        assert engine is not None
        engine.sequences.pop()

    assert ["list"] == facets(judged("create_sequence 4 30", forgotten))


def test_a_sequence_without_tables_chose_nothing() -> None:
    """Neither with a NULL L2 table."""

    def tableless(state: RecordState) -> None:
        sequence = sequence_of(state, 4)
        sequence.l1[0] = sequence.l1[1]
        sequence.tables[0] = None

    assert ["tables"] == facets(judged("create_sequence 4 30", tableless))


def test_a_dead_engine_chose_nothing() -> None:
    """An engine that disappeared in the call has no tables to look into."""

    def dead(state: RecordState) -> None:
        state.slots[0].engine = None

    assert ["counters"] == facets(judged("create_sequence 4 30", dead))


def taking(*blocks: int, free: int = 2) -> Edit:
    """A call that took these in the place of blocks 3 and 4, and left so many free."""

    def edit(state: RecordState) -> None:
        engine = engine_of(state)
        engine.ref_count[3:5] = array("i", [0, 0])
        for block in blocks:
            if 0 <= block < len(engine.ref_count):
                engine.ref_count[block] += 1
        engine.free_local_blocks = free
        l2_table(state, 4)[:2] = array("i", blocks)

    return edit


@pytest.mark.parametrize(
    ("blocks", "place"),
    [
        pytest.param([0, 3], 0, id="in use, then the first free one"),
        pytest.param([3, 2], 1, id="the first free one, then one in use"),
        pytest.param([3, 3], 1, id="one block twice"),
        pytest.param([-1, -1], 0, id="no block, and counted"),
        pytest.param([3, 9], 1, id="behind the last block, and counted"),
    ],
)
def test_a_block_that_was_not_free_is_a_choice_too(blocks: list[int], place: int) -> None:
    """First fit is the lowest free one. The tables are then compared with that, for nothing follows from the other."""
    found = judged("create_sequence 4 30", taking(*blocks, free=1), blocks=6)
    choice = next(one for one in found.differences if one.facet == "choice")

    assert f"the block taken for logical block {place} of sequence 4" == choice.field
    assert (f"block {3 + place}, the first with ref_count 0", f"block {blocks[place]}") == (
        choice.expected,
        choice.actual,
    )
    assert {"tables", "ref_count"} <= set(facets(found))


def test_no_block_that_was_not_counted_is_no_choice() -> None:
    """Such a call maps too few blocks; it took none."""
    found = facets(judged("create_sequence 4 30", taking(-1, -1, free=3)))

    assert ("tables" in found, "choice" in found) == (True, False)


def test_who_does_not_copy_chose_nothing() -> None:
    """The shared block that stays mapped is a matter of copy-on-write."""

    def in_place(state: RecordState) -> None:
        engine = engine_of(state)
        engine.ref_count[3], engine.ref_count[1], engine.free_local_blocks = 0, 2, 3
        l2_table(state, 3)[1] = 1

    found = facets(judged("append_kv 3 7", in_place))

    assert ("tables" in found, "choice" in found) == (True, False)
