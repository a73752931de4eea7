"""The states of memory in the terminal report: drawn where something in them is wrong and a terminal has the room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.core.record import Record
from grader.core.verdict import Visibility
from grader.report import text
from grader.report.escape import cells
from grader.tests.support.graded import drawn


def table(record: Record, width: int = 100, audience: str = "student") -> list[str]:
    """Its lines: what follows the line that names it, up to the next empty one."""
    lines = str(text.render(record, width=width, audience=audience)).splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("  State  ")), None)
    return [] if begin is None else lines[begin : lines.index("", begin)]


def marked(lines: list[str]) -> list[str]:
    """The labels of rows with the mark of the first wrong cell."""
    return [line[:23].strip() for line in lines if " >" in line and "> <" not in line]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("no_copy_on_write", "└ block_table[0]"),
        ("cow_copies_60_bytes", "block 1"),
        ("append_pointer_scale", "block 1"),
    ],
)
def test_one_cell_is_marked_in_what_is_yours(name: str, row: str) -> None:
    """Beside it stands what had to be there; no line is wider than a terminal of 80 columns."""
    lines = table(drawn(name))

    assert marked(lines) == [row]
    assert "expected" in lines[1]
    mark = next(line.index(">") for line in lines if " >" in line)
    assert lines[1].index("yours") <= mark < lines[1].index("expected")
    assert max(map(cells, lines)) <= 80


def test_a_terminal_without_the_room_has_none() -> None:
    """Half a table would say nothing; the sentences above it say the same."""
    assert table(drawn("cow_copies_60_bytes"), width=100)
    assert table(drawn("cow_copies_60_bytes"), width=60) == []


def test_nothing_of_a_hidden_case_is_drawn() -> None:
    """The instructor sees it."""
    record = drawn("no_copy_on_write")
    assert record.first_cause is not None
    hidden = replace(
        record,
        outcomes=tuple(
            replace(one, visibility=Visibility.HIDDEN) if one.case == record.first_cause.cases[0] else one
            for one in record.outcomes
        ),
    )

    assert table(hidden) == []
    assert table(hidden, audience="instructor") == table(record)


def test_rows_of_two_engines_stand_below_their_names() -> None:
    """Each name once, at the first row of its engine; without several engines there is none."""
    lines = table(drawn("append_uses_stale_global"))
    named = [line.split()[0:2] for line in lines if line.strip().startswith("engine @")]

    assert named == [["engine", "@1"], ["engine", "@2"]]
    assert not [line for line in table(drawn("no_copy_on_write")) if "engine" in line]
