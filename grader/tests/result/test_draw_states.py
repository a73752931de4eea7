"""What a record holds for a picture: the states of the failing cases that are shown, expected beside actual."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from grader.core.picture import PanelShape, Picture
from grader.core.record import from_json, to_json
from grader.core.verdict import Audience, Verdict
from grader.report.picture import DrawnScene, drawn as drawn_scenes
from grader.result import assemble
from grader.runtime.comparison import Comparison
from grader.tests.support.command import SAMPLES
from grader.tests.support.graded import drawn, graded
from grader.tests.support.same_result import same_result


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


def test_one_wrong_word_is_one_wrong_cell() -> None:
    """The last word of a block that was not copied whole, by name and by its place in the grid."""
    scene = bad_scene("cow_copies_60_bytes")
    wrong = [
        (panel.title, row.label, panel.columns[place], cell.yours, cell.expected)
        for panel in scene.panels
        for row in panel.rows
        for place, cell in enumerate(row.cells)
        if cell.wrong
    ]

    assert wrong == [("pool and ref_count", "block 1", "slot 15", "·", "=0")]
    assert scene.words == ("block 1, slot 15: yours untouched, should be copied from block 0",)


def judged(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Comparison]:
    """The comparisons of a sample, by case."""
    comparisons: dict[str, Comparison] = {}

    def remembered(_: object, played: Sequence[Comparison], *__: object) -> tuple[Picture, ...]:
        comparisons.update({comparison.case.name: comparison for comparison in played})
        return ()

    monkeypatch.setattr(assemble, "pictures", remembered)
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
            deviation.operation + 1: {
                difference.place if difference.facet == "choice" else difference.field
                for difference in deviation.judgement.differences
                if difference.facet != "reply" and difference.field != "the call"
            }
            for deviation in comparisons[picture.case].deviations
        }
        for scene in drawn_scenes(picture, record.outcome(picture.case), None):
            if scene.reached:
                assert wrong_places(scene) == differences.get(scene.step.number, set()), picture.case
                compared += len(wrong_places(scene))
    assert compared


def test_what_the_operation_changed_is_told() -> None:
    """By the program itself: the copy, the counts, the entry of the table; not what stayed."""
    scene = bad_scene("cow_copies_60_bytes")
    changed = {
        (row.label, panel.columns[place] if panel.columns else "")
        for panel in scene.panels
        for row in panel.rows
        for place, cell in enumerate(row.cells)
        if cell.changed
    }

    assert {("block 0", "ref_count"), ("block 1", "ref_count"), ("block 1", "slot 10")} <= changed
    assert {("sequence 2: block_table[0]", "[0]"), ("free_local_blocks", "")} <= changed
    assert not changed & {("block 0", "slot 0"), ("block 1", "slot 15"), ("total_local_blocks", "")}


def test_what_no_panel_shows_is_said_as_it_was_found() -> None:
    """A reply, and first of all: it is the first difference."""
    scene = bad_scene("append_returns_one")

    assert scene.words == ("what append_kv returns: yours 1, should be 0",)
    assert not any(panel.wrong for panel in scene.panels)


def test_neighbours_that_are_wrong_alike_are_one_sentence() -> None:
    """A block that was not copied at all is no sixteen sentences."""
    scene = bad_scene("no_copy_on_write")

    assert "block 1, slot 0 to slot 9: yours untouched, should be copied from block 0" in scene.words
    assert "block 0, slot 10: yours 77, should be untouched" in scene.words


def test_a_call_that_does_not_come_back_shows_what_it_had_to_leave() -> None:
    """And no scene behind it."""
    scene = bad_scene("fork_parent_unchecked")
    record = drawn("fork_parent_unchecked")

    assert not scene.reached
    assert not any(panel.wrong for panel in scene.panels)
    assert all(one.reached for picture in record.pictures for one in picture.scenes[:-1])


@pytest.mark.parametrize(
    "name", ["no_copy_on_write", "cow_copies_60_bytes", "append_l2_zero_filled", "byte_offset_not_scaled"]
)
def test_scenes_before_the_mistake_have_nothing_wrong(name: str) -> None:
    """The first difference is the first in the picture, too, and it is there."""
    record = drawn(name)
    assert record.pictures
    for picture in record.pictures:
        outcome = next(one for one in record.outcomes if one.case == picture.case)
        first = record.first_finding(outcome)
        scenes = drawn_scenes(picture, outcome, first)
        wrong = [scene.step.number for scene in scenes if scene.words]

        assert wrong[:1] == [picture.operation]
        assert scenes[0].step.number == 1
        assert first is not None
        assert first.operation == picture.operation


def test_every_cause_that_is_shown_is_drawn() -> None:
    """To students and to instructors; nothing else is decoded."""
    record = drawn("four_common_mistakes")
    shown = set()
    for audience in Audience:
        shown |= {cause.cases[0] for cause in record.causes_for(audience)[:6]}
    drawn_cases = [picture.case for picture in record.pictures]

    assert shown <= set(drawn_cases)
    assert len(drawn_cases) == len(set(drawn_cases)) <= 16


def test_programs_show_the_same_mistake() -> None:
    """Up to the operation that went wrong, in C."""
    picture = next(iter(drawn("no_copy_on_write").pictures))
    text = "\n".join(picture.program)

    assert "int main(void)" in text
    assert "append_kv(engine, 2, 77)" in text


def test_pictures_are_bounded() -> None:
    """Hundreds of blocks and sequences are some rows, long traces some scenes, and pools of megabytes nothing."""
    for name in ("all_null", "append_stops_at_256_records", "cow_searches_after_old_block"):
        record = drawn(name)
        for picture in record.pictures:
            assert len(picture.scenes) <= 18
            assert max(len(panel.rows) for scene in picture.scenes for panel in scene.panels) <= 84
        assert len(to_json(record)) - len(to_json(replace(record, pictures=()))) < 500_000


def test_pictures_change_no_result() -> None:
    """Who asks for none gets the same; a correct program has none; JSON keeps them."""
    record = drawn("cow_copies_60_bytes")

    assert same_result(record, replace(record, pictures=()))
    assert graded("paged_kv", SAMPLES / "wrong_answer" / "cow_copies_60_bytes").pictures == ()
    assert drawn("yoda_crlf").pictures == ()
    assert drawn("yoda_crlf").verdict is Verdict.ACCEPTED
    assert from_json(to_json(record)) == record
    assert all(isinstance(picture, Picture) for picture in record.pictures)


def test_a_record_holds_the_source_as_it_stands() -> None:
    """Line by line, so that a report can show what was found beside it."""
    path = SAMPLES / "wrong_answer" / "cow_copies_60_bytes" / "llm_memory.c"
    lines = [line.expandtabs(8) for line in path.read_text(encoding="utf-8").splitlines()]
    submission = drawn("cow_copies_60_bytes").submission

    assert list(submission.source) == lines
    assert submission.source_file == "llm_memory.c"
