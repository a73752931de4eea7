"""Small engines of plain states: what is read of their lines, what is tried, and which states are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.core.closure import explored
from grader.labs import LABS, open_lab
from grader.labs.small_plain import Remember, SmallLines, SmallPlain, State, always, read_line
from grader.tests.support.small_shelf import SHELF, small_shelf
from grader.tests.support.toy.lab import OPERATIONS
from reference.block_pool import Manager
from reference.operation import Operation

_CALLS = len(SHELF.lines)


def transitions(remember: Remember = always, passing: frozenset[str] = frozenset()) -> int:
    """How many a shelf of two boxes has."""
    return len(list(explored(small_shelf(replace(SHELF, remember=remember, passing=passing)))))


def test_a_line_is_an_operation_as_in_a_case_file() -> None:
    """Without claim."""
    assert read_line(OPERATIONS, "give [1,0]") == Operation(name="give", arguments=((1, 0),))
    with pytest.raises(ValueError, match="shorter"):
        read_line(OPERATIONS, "give")
    with pytest.raises(KeyError):
        read_line(OPERATIONS, "push 1")


def test_what_a_caller_would_not_do_is_no_transition() -> None:
    """Here it takes nothing but single boxes: of the seven calls two are left out."""

    def one_by_one(memory: object, state: State, operation: Operation) -> object | None:
        assert set(state) == {"users", "free", "names"}
        return None if operation.name == "take" and operation.arguments != (1,) else memory

    assert transitions() == 5 * _CALLS
    assert transitions(remember=one_by_one) == 5 * (_CALLS - 2)


def test_what_a_caller_remembers_is_part_of_the_state() -> None:
    """With the name of the last call there are ten states: the first, five behind take, and four behind give."""

    def last(memory: object, state: State, operation: Operation) -> object:
        return operation.name

    states = {transition.state for transition in explored(small_shelf(replace(SHELF, remember=last)))}

    assert transitions(remember=last) == len(states) * _CALLS
    assert len(states) == 1 + 5 + 4


def test_parts_that_only_tell_of_the_last_call_are_not() -> None:
    """Without the queue two states with both boxes free are one."""
    assert transitions(passing=frozenset({"free"})) == 4 * _CALLS


def test_a_call_that_names_what_is_not_there_is_not_tried() -> None:
    """A request that there never was."""
    lines = SmallLines(opening="mgr 4 2 true 99", lines=("step a 1", "get_usage"), most=9)
    small = SmallPlain(lines, open_lab("block_pool").grammar.operations, Manager())

    assert [transition.call for transition in explored(small)] == [2]


@pytest.mark.parametrize("name", [name for name, entry in LABS.items() if entry.source_name.endswith(".py")])
def test_every_line_of_a_lab_is_tried_somewhere(name: str) -> None:
    """In each of its small engines."""
    lab = open_lab(name)
    for small in lab.smalls():
        tried = {transition.call for transition in explored(small)}
        never = [str(call) for number, call in enumerate(small.calls) if number and number not in tried]

        assert never == [], small.calls[0]
