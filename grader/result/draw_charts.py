"""The charts of a failing case: the program's own run above the reference's, with the first wrong cell.

Unlike the pictures of states, the expected side is the run of the reference from the beginning of the case, so both
sides show a whole story. What follows the first difference may be its consequence; only the first is marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from grader.assignment.lab import Lab
from grader.core.chart import Chart, ChartCell, ComparedChart, Level, Track
from grader.runtime.comparison import Comparison
from reference.operation import Trace
from reference.oracle import CannotGoOn, CannotPoke

_Item = TypeVar("_Item")

_MOST_COLUMNS = 24
_AFTER = 4
"""The most columns behind that of the operation that went wrong."""
_MOST_TRACKS = 16
_MANY_TRACKS = 6
"""With more tracks than these, those in which nothing ever happens are left out."""
_MOST_RECORD = 32_768
"""The most bytes of a record that is read for a chart."""


def expected_charts(trace: Trace, lab: Lab, bad: int | None = None) -> list[Chart]:
    """Return the charts of the reference's run, for operation `bad` (counted from 1) or the last one."""
    if lab.charts is None:
        return []
    model = lab.model(trace)
    records = []
    for operation in trace.operations:
        try:
            model.apply(operation)
        except (CannotGoOn, CannotPoke):
            break
        records.append(model.describe(model.record()))
    return list(lab.charts(trace, records, bad or len(records)))


def charts(comparison: Comparison, bad: int, lab: Lab) -> Iterator[ComparedChart]:
    """Yield the charts of a played case that went wrong at operation `bad`, counted from 1."""
    if lab.charts is None:
        return
    trace = comparison.case.trace
    own = {chart.title: chart for chart in lab.charts(trace, list(_described(comparison, lab)), bad)}
    for wanted in expected_charts(trace, lab, bad):
        actual = own.pop(wanted.title, Chart(title=wanted.title, legend=wanted.legend))
        yield _compared(actual, wanted, bad)
    for alone in own.values():
        yield ComparedChart(actual=alone, expected=Chart(title=alone.title, legend=alone.legend))


def _described(comparison: Comparison, lab: Lab) -> Iterator[dict[str, Any]]:
    """Yield what a program reported after each operation, up to a record that is too large or not readable."""
    model = lab.model(comparison.case.trace)
    for step in comparison.played.steps:
        if len(step.record) > _MOST_RECORD:
            return
        try:
            yield {**model.describe(step.record), "notes": step.notes}
        except CannotGoOn:
            return


def _compared(actual: Chart, expected: Chart, bad: int) -> ComparedChart:
    """Give both charts the same columns and labels, and find the first cell that differs."""
    width = max(len(actual.columns), len(expected.columns))
    labels = list(dict.fromkeys(track.label for chart in (expected, actual) for track in chart.tracks))
    operations = max(actual.operations, expected.operations, key=len)
    behind = sum(number <= bad for number in operations) + _AFTER if operations else _MOST_COLUMNS
    window = range(max(0, min(behind, width) - _MOST_COLUMNS), min(behind, width))
    sides = [_fitted(chart, labels, window) for chart in (actual, expected)]
    shown = [place for place in range(len(labels)) if any(any(side.tracks[place].cells) for side in sides)]
    if len(shown) > _MANY_TRACKS:
        shown = [place for place in shown if len({cell for side in sides for cell in side.tracks[place].cells}) > 1]
    shown = shown[:_MOST_TRACKS]
    actual, expected = (replace(side, tracks=tuple(side.tracks[place] for place in shown)) for side in sides)
    actual = replace(actual, known=())
    return ComparedChart(actual=actual, expected=expected, wrong=_first_wrong(actual.tracks, expected.tracks))


def _fitted(chart: Chart, labels: Sequence[str], window: range) -> Chart:
    """Cut a chart to a window of columns, with a track for each label."""
    cells = {track.label: track.cells for track in chart.tracks}
    return replace(
        chart,
        columns=tuple(chart.columns[place] for place in window if place < len(chart.columns)),
        operations=tuple(chart.operations[place] for place in window if place < len(chart.operations)),
        tracks=tuple(Track(label=label, cells=_window(cells.get(label, ()), window, "")) for label in labels),
        levels=tuple(
            Level(label=level.label, values=_window(level.values, window, None), most=level.most)
            for level in chart.levels
        ),
    )


def _window(items: Sequence[_Item], window: range, nothing: _Item) -> tuple[_Item, ...]:
    return tuple(items[place] if place < len(items) else nothing for place in window)


def _first_wrong(actual: Sequence[Track], expected: Sequence[Track]) -> ChartCell | None:
    """Return the first difference, from left to right, then from top to bottom."""
    wrong = [
        (column, place)
        for place, (own, right) in enumerate(zip(actual, expected, strict=True))
        for column, (cell, wanted) in enumerate(zip(own.cells, right.cells, strict=True))
        if cell != wanted
    ]
    return ChartCell(*min(wrong)) if wrong else None
