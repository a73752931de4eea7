"""Charts of whole cases, of every lab that has any: a right run beside itself, and whatever a program may report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings, strategies as st

from grader import pipeline
from grader.assignment import load
from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.chart import Chart, ComparedChart
from grader.core.picture import Drawing
from grader.judge.compare import compare
from grader.labs import LABS, open_lab
from grader.report.charts import chart_lines, legend_of, show_charts
from grader.report.page import Page
from grader.result.draw_charts import charts, expected_charts
from grader.runtime.observation import Played
from grader.tests.support.command import ROOT
from grader.tests.support.programs import told
from reference.model import play

WITH_CHARTS = [name for name in LABS if open_lab(name).charts is not None]


@cache
def cases(name: str) -> list[Case]:
    """The written cases of a lab."""
    lab = open_lab(name)
    return [case for case in load.load_folder(lab.cases, lab.grammar, seed=1) if case.generated is None]


def reported(lab: Lab, case: Case, records: list[bytes]) -> list[ComparedChart]:
    """The charts of a program that reports these records."""
    comparison = compare(Played(case, steps=told(records)), lab.model)
    return list(charts(comparison, len(case.trace.operations), lab))


def text_of(shown: list[ComparedChart]) -> str:
    """What a terminal shows of charts."""
    page = Page(100, colour=False)
    show_charts(page, shown)
    return str(page.text())


def sides(shown: list[ComparedChart]) -> Iterator[Chart]:
    """The charts of both runs."""
    for chart in shown:
        yield chart.actual
        yield chart.expected


@pytest.mark.parametrize("name", WITH_CHARTS)
def test_a_right_run_has_no_wrong_cell(name: str) -> None:
    """Every cell has a sign of the legend, and both sides have the same size."""
    lab = open_lab(name)
    for case in cases(name):
        records = [step.record for step in play(lab.model(case.trace), case.trace)]
        shown = reported(lab, case, records)
        assert all(chart.wrong is None for chart in shown), case.name
        assert len(shown) == len(expected_charts(case.trace, lab))
        for chart in sides(shown):
            assert {len(track.cells) for track in chart.tracks} <= {len(chart.columns)}
            assert all(text[0] in chart.legend for track in chart.tracks for text in track.cells if text)
            assert len(list(chart_lines(chart))) >= len(chart.tracks) + len(chart.levels) + len(chart.bars)


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


def test_streams_are_lanes_with_the_pair_marked() -> None:
    """Of a program that frees before the copy is done: there is nothing to expect beside it."""
    lab, sample = open_lab("offload"), ROOT / "submissions" / "offload" / "wrong_answer" / "one_kv_buffer_no_wait"
    record = pipeline.grade(sample, lab, cases("offload"), draw=Drawing.FIRST)
    assert record.diagnosis is not None
    (picture,) = (one for one in record.pictures if one.case == record.diagnosis.case)
    (lanes,) = (chart for chart in picture.charts if chart.actual.title.startswith("Streams"))

    first, second = lanes.actual.marks
    assert lanes.expected.tracks == ()
    assert first.track != second.track
    for mark in lanes.actual.marks:
        assert lanes.actual.tracks[mark.track].cells[mark.column] in lanes.actual.legend
    assert text_of([lanes]).count(">") == 2
