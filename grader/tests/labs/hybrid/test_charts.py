"""The pool and the tables of groups as charts."""

from __future__ import annotations

from grader.labs import open_lab
from grader.result.draw_charts import expected_charts
from grader.tests.support.charted import cases


def test_blocks_have_the_letter_of_their_group() -> None:
    """In the handout's worked example, when `a` has twice two blocks, and when its window has moved on."""
    case = next(case for case in cases("hybrid") if case.name == "worked/manager")
    pool, tables = expected_charts(case.trace, open_lab("hybrid"))
    cells = {track.label: track.cells[:2] for track in pool.tracks}

    assert cells["block 1"] == ("Aa", "Aa")
    assert cells["block 3"] == ("Ba", "~")
    assert cells["block 9"] == ("·", "·")
    assert any(text.startswith("∅") for track in tables.tracks for text in track.cells)
