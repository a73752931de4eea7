"""What a web page begins with: the student's lines around the place, and three states of the call that went wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.core.picture import Panel, PanelShape, Picture, Scene, StateRow
from grader.core.record import Record, Submission
from grader.core.verdict import Audience, Cause, SourceLine, Verdict
from grader.labs.paged_kv.picture import picture
from grader.report import FORMATS
from grader.report.document import View
from grader.report.excerpt import coloured, excerpt
from grader.report.picture import CellMark, DrawnScene, Side, drawn as scenes_of, narrowed
from grader.report.progress import by_task
from grader.report.start_here import Focus, focus
from grader.tests.support.graded import drawn
from grader.tests.support.handmade import outcome, record_of, secret_record

_LINES = ("/* one", "   int two */", "\tint three = 3;", 'return "<four>";', "", "six", "")

_CAUSE = Cause(
    rule="address", verdict=Verdict.WRONG_ANSWER, sentence="secret", cases=("a/b",), call="append_kv", operation=3,
    lines=(SourceLine(file="a.c", line=4),), hint="Look at it.",
)  # fmt: skip


def seen(name: str) -> Focus:
    """What the page of a sample begins with."""
    found = focus(drawn(name), Audience.STUDENT)
    assert found is not None
    return found


def with_source(*lines: str) -> Record:
    """A record with these lines."""
    return record_of(outcome("a/b"), submission=Submission(name="x", source_file="a.c", source=lines))


def marked(scene: DrawnScene, side: Side) -> list[tuple[str, str, str]]:
    """Label, text and mark of the cells that are marked."""
    rows = [(panel, row) for panel in scene.panels for row in panel.rows]
    return [(row.label, text, mark.value) for panel, row in rows for text, mark in panel.cells(row, side) if mark]


def cells_of(scene: DrawnScene, label: str) -> list[list[tuple[str, CellMark]]]:
    """The cells of a row of the first panel, before the operation, after it and as expected."""
    panel = scene.panels[0]
    row = next(row for row in panel.rows if row.label == label)
    return [panel.cells(row, side) for side in Side]


@pytest.mark.parametrize(
    ("line", "verdict", "caption"),
    [
        (3, Verdict.WRONG_ANSWER, "Your code"),
        (4, Verdict.WRONG_ANSWER, "Returned"),
        (4, Verdict.RUN_TIME_ERROR, "Your code"),
        (4, Verdict.MEMORY_LEAK, "Allocated"),
    ],
)
def test_a_line_that_only_returns_a_wrong_value_is_not_shown_as_the_mistake(
    line: int, verdict: Verdict, caption: str
) -> None:
    """The value went wrong before; but what crashes in a return statement is the mistake."""
    cause = replace(_CAUSE, verdict=verdict, lines=(SourceLine(file="a.c", line=line),))
    record = replace(with_source(*_LINES), outcomes=(outcome("a/b", verdict=verdict),), causes=(cause,))
    shown = focus(replace(record, verdict=verdict), Audience.STUDENT)

    assert shown is not None
    assert shown.caption == caption


@pytest.mark.parametrize(("line", "numbers"), [(1, [1, 2, 3]), (4, [2, 3, 4, 5, 6]), (7, [5, 6, 7])])
def test_two_lines_stand_around_the_one_that_is_meant(line: int, numbers: list[int]) -> None:
    """As many as there are; empty ones too."""
    found = excerpt(with_source(*_LINES), SourceLine(file="a.c", line=line))
    assert found is not None

    assert [one.number for one in found.lines] == numbers
    assert [one.number for one in found.lines if one.here] == [line]


def test_lines_are_coloured_and_escaped() -> None:
    """A comment that began before them is one, a tab is four columns wide, no text of theirs is an element."""
    found = excerpt(with_source(*_LINES), SourceLine(file="a.c", line=4, column=8))
    assert found is not None
    pieces = {one.number: made for one, made in coloured(found)}
    page = FORMATS["html"](replace(with_source(*_LINES), causes=(_CAUSE,)), View())

    assert pieces[2] == [("com", "   int two */")]
    assert pieces[3][0] == ("", "    ")
    assert ("num", "3") in pieces[3]
    assert '<span class="key">return</span> <span class="str">&#34;</span><span class="str">&lt;four&gt;</span>' in page
    assert [one.column for one in found.lines] == [0, 0, 8, 0, 0]
    assert excerpt(with_source("\tx = y;"), SourceLine(file="a.c", line=1, column=2)).lines[0].column == 5  # type: ignore[union-attr]


@pytest.mark.parametrize("place", [None, SourceLine(file="b.h", line=1), SourceLine(file="a.c", line=8)])
def test_there_is_no_excerpt_of_what_is_not_shown(place: SourceLine | None) -> None:
    """No place, another file, a line behind the last."""
    assert excerpt(with_source(*_LINES), place) is None


@pytest.mark.parametrize("text", ["a " * 9_000, "(" * 9_000, "/*" * 9_000, '"\\' * 9_000, "\r\n" * 99, "\f\v\x1c" * 40])
def test_no_line_keeps_the_colours_busy(text: str) -> None:
    """What is shown of a line is short; each line stays one."""
    found = excerpt(with_source(*[text] * 5), SourceLine(file="a.c", line=3))
    assert found is not None

    assert len(found.lines) == 5
    assert all(len(one.text) <= 120 for one in found.lines)
    assert ["".join(text for _, text in pieces) for _, pieces in coloured(found)] == [one.text for one in found.lines]


def test_the_first_wrong_cell_is_the_one_that_the_report_names() -> None:
    """The rest of what is wrong is marked less, and what should stand there is marked too."""
    found = seen("fork_visits_only_used_l1_slots").scene
    assert found is not None

    assert [one for one in marked(found, Side.YOURS) if one[2] == "first"] == [("└ block_table", "NULL", "first")]
    assert ("block 0", "1", "wrong") in marked(found, Side.YOURS)
    assert ("└ block_table", "table", "right") in marked(found, Side.EXPECTED)
    assert marked(found, Side.BEFORE) == []


def test_neighbours_that_are_alike_are_one_cell() -> None:
    """So three tables stand side by side."""
    found = seen("cow_copies_60_bytes").scene
    assert found is not None

    assert found.panels[0].columns == ("ref_count", "0–9", "10", "11–14", "15")
    assert [cells[-1] for cells in cells_of(found, "block 1")] == [
        ("·", CellMark.NONE),
        ("·", CellMark.FIRST),
        ("=0", CellMark.RIGHT),
    ]


def test_a_call_that_does_not_come_back_has_no_state_of_its_own() -> None:
    """What it met and what it had to leave are shown."""
    found = seen("append_without_second_l2_table")
    assert found.scene is not None

    assert not found.scene.reached
    assert found.scene.sides == [Side.BEFORE, Side.EXPECTED]
    assert ("└ block_table[1]", "16", "changed") in marked(found.scene, Side.EXPECTED)
    assert [step.number for step in found.steps] == [1, 2, 3]


def test_a_state_that_is_right_is_not_called_wrong() -> None:
    """As where a call leaks, and leaves all else as it must."""
    panel = Panel(title="p", shape=PanelShape.VALUES, rows=(0,))
    rows = (StateRow(label="r", expected=("2",), before=("1",)),)
    picture = Picture(case="a/b", operation=3, rows=rows, scenes=(Scene(operation=3, panels=(panel,)),))
    found = narrowed(scenes_of(picture, outcome("a/b"), None)[0], None)

    assert not found.is_wrong
    assert marked(found, Side.YOURS) == marked(found, Side.EXPECTED) == [("r", "2", "changed")]


def test_where_nothing_changed_there_is_nothing_to_compare() -> None:
    """A right call that has nothing to do."""
    panel = Panel(title="p", shape=PanelShape.VALUES, rows=(0,))
    rows = (StateRow(label="r", expected=("1",)),)
    picture = Picture(case="a/b", operation=3, rows=rows, scenes=(Scene(operation=3, panels=(panel,)),))

    assert narrowed(scenes_of(picture, outcome("a/b"), None)[0], None).panels == ()


def test_of_a_hidden_case_only_rule_and_title_are_shown() -> None:
    """To students; an instructor sees all."""
    cause = replace(_CAUSE, cases=("append/secret_name",), lines=(SourceLine(file="a.c", line=1),))
    submission = Submission(name="x", source_file="a.c", source=("x",))
    made = replace(secret_record(), causes=(cause,), submission=submission)
    student, instructor = (focus(made, audience) for audience in (Audience.STUDENT, Audience.INSTRUCTOR))
    assert student is not None
    assert instructor is not None

    assert (student.seen, student.excerpt, student.steps, student.scene) == ("", None, (), None)
    assert "a hidden title" in student.case
    assert instructor.excerpt is not None


def test_a_failing_build_shows_the_lines_of_its_first_messages() -> None:
    """With the column; of the others the place is enough."""
    found = seen("sign_compare")

    assert found.messages
    assert found.messages[0].excerpt is not None
    assert any(line.column for line in found.messages[0].excerpt.lines)


def test_what_was_met_is_known_of_rows_that_stood_together() -> None:
    """The block that the call changed was one of many untouched ones before it."""
    found = seen("append_byte_offset").scene
    assert found is not None
    before, yours, _ = cells_of(found, "block 38")

    assert {text for text, _ in before[1:]} == {"·"}
    assert before[0] == ("1", CellMark.NONE)
    assert [text for text, mark in yours if mark is CellMark.WRONG] == ["1883", "76670…"]


def test_a_write_outside_the_pool_is_no_cell_of_it() -> None:
    """It has a row of its own, called as the report calls it."""
    engine = {"pool": [["."] * 16], "ref_count": [1], "outside": ["40 bytes behind the pool"]}
    parts = {part.title: [label for _, label in part.lines] for part in picture({"engines": {1: engine}, "slots": 1})}

    assert parts == {"pool and ref_count": ["block 0"], "outside the blocks": ["40 bytes behind the pool"]}


def test_each_task_is_told_what_it_costs() -> None:
    """By the calls in which public cases go wrong first; those that work cost nothing."""
    record = drawn("append_byte_offset")
    by_call, hidden = by_task(record)
    tasks = {task.call: task for task in by_call}

    assert [name for name, task in tasks.items() if task.is_wrong] == ["append_kv"]
    assert tasks["append_kv"].lost > 1
    lost = sum(rule.max_points - rule.points - rule.withheld for rule in record.rules)
    assert sum(task.lost for task in by_call) + hidden == lost
    assert f'<td data-at="costs">{tasks["append_kv"].lost} points</td>' in FORMATS["html"](record, View())
