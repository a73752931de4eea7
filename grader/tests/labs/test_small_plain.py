"""Small engines of plain states: what is read of their lines, what is tried, and which states are the same."""

from __future__ import annotations

import pytest

from grader.core.closure import explored
from grader.labs import LABS, open_lab
from grader.labs.block_pool.oracle import BlockPoolOracle
from grader.labs.plain_lab import SmallLines, SmallPlain


def test_a_call_that_names_what_is_not_there_is_not_tried() -> None:
    """A request that there never was."""
    lines = SmallLines(opening="mgr 4 2 true 99", lines=("step a 1", "get_usage"), most=9)
    small = SmallPlain(lines, open_lab("block_pool").grammar.operations, BlockPoolOracle())

    assert [transition.call for transition in explored(small)] == [2]


@pytest.mark.parametrize("name", [name for name, entry in LABS.items() if entry.source_name.endswith(".py")])
def test_every_line_of_a_lab_is_tried_somewhere(name: str) -> None:
    """In each of its small engines."""
    lab = open_lab(name)
    for small in lab.smalls():
        tried = {transition.call for transition in explored(small)}
        never = [str(call) for number, call in enumerate(small.calls) if number and number not in tried]

        assert never == [], small.calls[0]
