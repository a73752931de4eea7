"""The states of memory in the terminal report: drawn where something in them is wrong and a terminal has the room."""

from __future__ import annotations

from dataclasses import replace

from grader.core.record import Record
from grader.core.verdict import Visibility
from grader.report import text
from grader.tests.support.graded import drawn


def table(record: Record, width: int = 100, audience: str = "student") -> list[str]:
    """Its lines: what follows the line that names it, up to the next empty one."""
    lines = str(text.render(record, width=width, audience=audience)).splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("  State  ")), None)
    return [] if begin is None else lines[begin : lines.index("", begin)]


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
