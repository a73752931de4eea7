"""What a record holds for a picture: the states of the failing cases that are shown, expected beside actual."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from grader.core.picture import PanelShape, Picture
from grader.report.picture import DrawnScene, drawn as drawn_scenes
from grader.result import draw_states
from grader.runtime.protocol import Comparison
from grader.tests.support.graded import drawn


def bad_scene(name: str, case: str = "") -> DrawnScene:
    """The scene of the first mistake in the diagnosed case of a sample, or in another."""
    record = drawn(name)
    assert record.first_cause is not None
    wanted = case or record.first_cause.cases[0]
    picture = next(one for one in record.pictures if one.case == wanted)
    outcome = record.outcome(wanted)
    return next(
        one
        for one in drawn_scenes(picture, outcome, record.first_finding(outcome))
        if one.step.number == picture.operation
    )


def judged(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Comparison]:
    """The comparisons of a sample, by case."""
    comparisons: dict[str, Comparison] = {}

    def remembered(_: object, played: Sequence[Comparison], *__: object) -> tuple[Picture, ...]:
        comparisons.update({comparison.case.name: comparison for comparison in played})
        return ()

    monkeypatch.setattr(draw_states, "pictures", remembered)
    drawn.__wrapped__(name)
    return comparisons


def wrong_places(scene: DrawnScene) -> set[str]:
    """The wrong cells, called as differences call them."""
    names = {
        f"{row.label}, {panel.columns[place]}"
        if panel.shape is PanelShape.GRID
        else row.label + (panel.columns[place] if len(row.cells) > 1 else "")
        for panel in scene.panels
        for row in panel.rows
        for place, cell in enumerate(row.cells)
        if cell.wrong
    }
    named = {re.sub(r"^block (\d+), ref_count$", r"ref_count[\1]", name) for name in names}
    return {re.sub(r"^sequence \d+$", r"\g<0>: kv_count", name) for name in named}


@pytest.mark.parametrize("name", ["last_fit", "next_fit_static_cursor", "no_copy_on_write", "cow_copies_60_bytes"])
def test_wrong_cells_are_the_differences_of_the_judge(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of them: a program that takes another block is judged with its own choice, and has one wrong entry."""
    record = drawn(name)
    comparisons = judged(name, monkeypatch)
    compared = 0
    for picture in record.pictures:
        differences = {
            operation + 1: {
                difference.place if difference.facet == "choice" else difference.field
                for difference in judgement.differences
                if difference.facet != "reply" and difference.field != "the call"
            }
            for operation, judgement in comparisons[picture.case].wrong.items()
        }
        for scene in drawn_scenes(picture, record.outcome(picture.case), None):
            if scene.reached:
                assert wrong_places(scene) == differences.get(scene.step.number, set()), picture.case
                compared += len(wrong_places(scene))
    assert compared


def test_neighbours_that_are_wrong_alike_are_one_sentence() -> None:
    """A block that was not copied at all is no sixteen sentences."""
    scene = bad_scene("no_copy_on_write")

    assert "block 1, slot 0 to slot 9: yours untouched, should be copied from block 0" in scene.words
    assert "block 0, slot 10: yours 77, should be untouched" in scene.words
