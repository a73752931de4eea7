"""The schedule as a chart."""

from __future__ import annotations

import json

from grader.core.model import play
from grader.labs import open_lab
from grader.tests.support.charted import cases, reported, text_of


def test_the_first_wrong_cell_is_the_leftmost() -> None:
    """Of two that differ; the chart is shown with the columns of both sides."""
    lab = open_lab("scheduler")
    case = next(case for case in cases("scheduler") if case.name == "admission/nobody_overtakes")
    records = [json.loads(step.record) for step in play(lab.model(case.trace), case.trace)]
    places = [place for place, operation in enumerate(case.trace.operations) if operation.name == "schedule"]
    for place in places[1:]:
        records[place]["reply"] = {"returned": [[["c", 1]], ["c"], [], ["a"], 1]}
    shown = reported(lab, case, [json.dumps(record).encode() for record in records])

    (schedule,) = shown
    assert schedule.wrong is not None
    yours, expected = (side.tracks[schedule.wrong.track] for side in (schedule.actual, schedule.expected))
    assert (schedule.wrong.column, yours.label) == (1, "a")
    assert (yours.cells[1], expected.cells[1]) == ("x", "D")
    assert ">x<" in text_of(shown)
