"""Charts of whole cases, of every lab that has any: a right run beside itself, and whatever a program may report."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from grader.core.model import play
from grader.core.picture import Chart, ComparedChart
from grader.labs import LABS, open_lab
from grader.report.trace import chart_lines, legend_of
from grader.result.draw_states import expected_charts
from grader.tests.support.charted import cases, reported, text_of

WITH_CHARTS = [name for name in LABS if open_lab(name).charts is not None]


def sides(shown: list[ComparedChart]) -> Iterator[Chart]:
    """The charts of both runs."""
    for chart in shown:
        yield chart.actual
        yield chart.expected


@pytest.mark.parametrize("name", WITH_CHARTS)
def test_a_right_run_has_no_wrong_cell(name: str) -> None:
    """Every cell has a sign of the legend, and both sides have the same size."""
    lab, drawn = open_lab(name), 0
    for case in cases(name):
        records = [step.record for step in play(lab.model(case.trace), case.trace)]
        shown = reported(lab, case, records)
        drawn += len(shown)
        assert all(chart.wrong is None for chart in shown), case.name
        assert len(shown) == len(expected_charts(case.trace, lab))
        for chart in sides(shown):
            assert {len(track.cells) for track in chart.tracks} <= {len(chart.columns)}
            assert all(text[0] in chart.legend for track in chart.tracks for text in track.cells if text)
            assert len(list(chart_lines(chart))) >= len(chart.tracks) + len(chart.levels) + len(chart.bars)
    if not drawn:
        pytest.skip("this lab draws only what goes wrong")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from(("a", "b", "RUNNING", "?", "!")),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(("a", "b", "!", "0")), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("name", WITH_CHARTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_a_program_reports_is_drawn(name: str, data: st.DataObject) -> None:
    """Parts of replies and states are of any type; records are missing, or no JSON at all."""
    lab = open_lab(name)
    case = data.draw(st.sampled_from(cases(name)[:40]))
    records = [json.loads(step.record) for step in play(lab.model(case.trace), case.trace)]
    for record in records:
        if data.draw(st.booleans()):
            record["reply"] = {"returned": data.draw(ANYTHING)}
        elif data.draw(st.booleans()) and record["state"]:
            record["state"][data.draw(st.sampled_from(sorted(record["state"])))] = data.draw(ANYTHING)
    sent = [json.dumps(record).encode() for record in records]
    if data.draw(st.booleans()):
        sent[data.draw(st.integers(0, len(sent) - 1))] = b"{"
    shown = reported(lab, case, sent[: data.draw(st.integers(0, len(sent)))])

    for chart in sides(shown):
        assert legend_of(chart) or not any(any(track.cells) for track in chart.tracks)
    text_of(shown)
