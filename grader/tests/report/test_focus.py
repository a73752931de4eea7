"""What a web page begins with: the student's lines around the place, and three states of the call that went wrong."""

from __future__ import annotations

from grader.core.verdict import Audience
from grader.labs.paged_kv.picture import picture
from grader.report.picture import CellMark, DrawnScene, Side
from grader.report.start_here import Focus, focus
from grader.tests.support.graded import drawn


def seen(name: str) -> Focus:
    """What the page of a sample begins with."""
    found = focus(drawn(name), Audience.STUDENT)
    assert found is not None
    return found


def marked(scene: DrawnScene, side: Side) -> list[tuple[str, str, str]]:
    """Label, text and mark of the cells that are marked."""
    rows = [(panel, row) for panel in scene.panels for row in panel.rows]
    return [(row.label, text, mark.value) for panel, row in rows for text, mark in panel.cells(row, side) if mark]


def cells_of(scene: DrawnScene, label: str) -> list[list[tuple[str, CellMark]]]:
    """The cells of a row of the first panel, before the operation, after it and as expected."""
    panel = scene.panels[0]
    row = next(row for row in panel.rows if row.label == label)
    return [panel.cells(row, side) for side in Side]


def test_the_first_wrong_cell_is_the_one_that_the_report_names() -> None:
    """The rest of what is wrong is marked less, and what should stand there is marked too."""
    found = seen("fork_visits_only_used_l1_slots").scene
    assert found is not None

    assert [one for one in marked(found, Side.YOURS) if one[2] == "first"] == [("└ block_table", "NULL", "first")]
    assert ("block 0", "1", "wrong") in marked(found, Side.YOURS)
    assert ("└ block_table", "table", "right") in marked(found, Side.EXPECTED)
    assert marked(found, Side.BEFORE) == []


def test_a_call_that_does_not_come_back_has_no_state_of_its_own() -> None:
    """What it met and what it had to leave are shown."""
    found = seen("append_without_second_l2_table")
    assert found.scene is not None

    assert not found.scene.reached
    assert found.scene.sides == [Side.BEFORE, Side.EXPECTED]
    assert ("└ block_table[1]", "16", "changed") in marked(found.scene, Side.EXPECTED)
    assert [step.number for step in found.steps] == [1, 2, 3]


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
