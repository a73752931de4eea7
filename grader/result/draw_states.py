"""Pictures for a record: the states of the failing cases that a report shows, expected next to actual.

Every drawn state has to be decoded, so only the first case of a cause is drawn: at most `_MOST_PICTURES` causes for
instructors, and at most as many for students, who see no hidden case. The expected state is the state that the judge
compared with: the operations of the case are judged once more, so that the picture marks what the judge marked. A
mistake is marked at the call that made it, not at later ones.

Pictures are part of the record. A report is a function of the record, and cases or models may have changed when the
report is made again. A picture ends before an unreadable state or a state of more than 32 KB. If the failing operation
is not drawn, the page says so.

A chart shows the program's run above the reference's run, and marks the first wrong cell. The expected side is the run
of the reference from the beginning of the case, unlike in pictures of states. Later differences may follow from the
first one, so only the first is marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.model import Model
from grader.core.picture import (
    Chart,
    ChartCell,
    ComparedChart,
    Drawing,
    Level,
    Panel,
    Picture,
    Scene,
    StatePart,
    StateRow,
    Track,
)
from grader.core.record import Record
from grader.core.verdict import Audience, Outcome
from grader.runtime.protocol import Comparison
from reference.operation import Trace
from reference.oracle import CannotGoOn, CannotPoke

_Item = TypeVar("_Item")

_MOST_COLUMNS = 24
_MOST_TRACKS = 16
_MANY_TRACKS = 6
"""If there are more tracks than this, tracks that never change are left out."""


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
    """Yield the program's records as plain values, each with its notes; stop at a too large or unreadable record."""
    model = lab.model(comparison.case.trace)
    for step in comparison.played.steps:
        if len(step.record) > _MOST_STATE:
            return
        try:
            yield {**model.describe(step.record), "notes": step.notes}
        except CannotGoOn:
            return


def _compared(actual: Chart, expected: Chart, bad: int) -> ComparedChart:
    """Return both charts with the same columns and labels, and the first cell that differs."""
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


_MOST_PICTURES = 8
_MOST_STATE = 32_768
"""The most bytes of a drawn record. The picture of a larger record would be unreadable."""

_BEFORE, _AFTER = 14, 3
"""The number of scenes before the operation that went wrong, and after it."""

_MOST_ROWS = 64
"""The most rows of a panel. Up to `_MOST_WRONG` wrong rows are chosen first."""

_MOST_WRONG = 60
_MOST_LINES = 2000
"""The most lines of a program that reproduces a case. Checks, malloc and driver take 1,000 of these lines."""

_Key = tuple[int, str]
"""Depth and label of a row."""


def pictures(
    record: Record, comparisons: Sequence[Comparison], lab: Lab, drawing: Drawing = Drawing.ALL
) -> tuple[Picture, ...]:
    """Return the pictures for a record, drawn from these comparisons."""
    by_name = {comparison.case.name: comparison for comparison in comparisons}
    if drawing is Drawing.ALL:
        return tuple(_picture(record, outcome, by_name[outcome.case], lab) for outcome in _shown(record))
    cases = record.first_cause.cases[:1] if record.first_cause is not None and drawing is Drawing.FIRST else ()
    return tuple(_picture(record, record.outcome(case), by_name[case], lab, first_only=True) for case in cases)


def _shown(record: Record) -> list[Outcome]:
    """Return the cases that a report for instructors shows, then the others that a report for students shows."""
    shown = dict.fromkeys(
        cause.cases[0] for reader in reversed(Audience) for cause in record.causes_for(reader)[:_MOST_PICTURES]
    )
    return [record.outcome(case) for case in shown]


def _picture(
    record: Record, outcome: Outcome, comparison: Comparison, lab: Lab, *, first_only: bool = False
) -> Picture:
    """Draw one case; `first_only` draws only the operation that went wrong."""
    operations = comparison.case.trace.operations
    bad = min(max(record.bad_operation(outcome), 1), len(operations))
    window = range(bad - 1, bad) if first_only else range(max(0, bad - 1 - _BEFORE), min(bad + _AFTER, len(operations)))
    rows = Rows()
    return Picture(
        case=outcome.case,
        operation=bad,
        scenes=tuple(_scenes(comparison, lab, window, rows)),
        rows=tuple(rows.stored),
        charts=tuple(charts(comparison, bad, lab)),
        program=() if first_only else _program(comparison.case, bad - 1, lab),
    )


def _program(case: Case, operation: int, lab: Lab) -> tuple[str, ...]:
    lines = lab.reproduce(case, operation).splitlines()
    return tuple(lines) if len(lines) <= _MOST_LINES else ()


def _scenes(comparison: Comparison, lab: Lab, window: range, rows: Rows) -> Iterator[Scene]:
    """Yield a scene for each operation of the window, counted from 0, up to a state that cannot be drawn."""
    model = lab.model(comparison.case.trace)
    before: bytes | None = None
    for number in range(window.stop):
        actual = comparison.played.steps[number].record if number < len(comparison.played.steps) else None
        if number in window and max(len(before or b""), len(actual or b"")) > _MOST_STATE:
            return  # a program may report states of several megabytes
        try:
            expected = _expected(comparison, number, before, model)
            if number in window:
                if len(expected) > _MOST_STATE:
                    return
                left, right = ([*lab.picture(model.describe(state))] for state in (actual or expected, expected))
                met = left if before is None else [*lab.picture(model.describe(before))]
                panels = tuple(panels_of(met, left, right, rows))
                yield Scene(operation=number + 1, reached=actual is not None, panels=panels)
        except (CannotGoOn, CannotPoke, OverflowError):
            return
        if actual is None:
            return
        before = actual


def _expected(comparison: Comparison, number: int, before: bytes | None, model: Model) -> bytes:
    """Return the expected record after an operation. Raises `CannotGoOn` and `CannotPoke`."""
    operation, steps = comparison.case.trace.operations[number], comparison.played.steps
    if number < comparison.follows:
        return steps[number].record
    if number < len(steps):
        wrong = model.judge(before, operation, steps[number].record).differences
        return model.compared() if wrong else steps[number].record
    if before is not None:
        model.restore(before)
    model.apply(operation)
    return model.record()


@dataclass(slots=True)
class Rows:
    """The rows of a picture, each stored once."""

    stored: list[StateRow] = field(default_factory=list)
    places: dict[StateRow, int] = field(default_factory=dict)

    def place(self, row: StateRow) -> int:
        """Return the position of a row."""
        if row not in self.places:
            self.places[row] = len(self.stored)
            self.stored.append(row)
        return self.places[row]


def panels_of(
    before: Sequence[StatePart], actual: Sequence[StatePart], expected: Sequence[StatePart], rows: Rows
) -> Iterator[Panel]:
    """Yield the panels of the three states, in the order of the expected state. Unexpected parts come last."""
    met, theirs, right = ({part.title: part for part in state} for state in (before, actual, expected))
    for title in right | theirs:
        sides = [state[title] for state in (right, theirs) if title in state]
        every = list(_rows(*(state[title].lines if title in state else {} for state in (met, theirs, right))))
        if not every:
            continue
        shown = _fewer(every)
        yield Panel(
            title=title,
            shape=sides[0].shape,
            columns=sides[0].columns,
            legend={sign: meaning for side in sides for sign, meaning in side.legend.items()},
            rows=tuple(rows.place(row) if row is not None else -1 for row in shown),
            omitted=len(every) - sum(row is not None for row in shown),
        )


def _rows(
    met: Mapping[_Key, tuple[str, ...]], theirs: Mapping[_Key, tuple[str, ...]], right: Mapping[_Key, tuple[str, ...]]
) -> Iterator[StateRow]:
    for key in _in_order(right, theirs):
        before, actual, expected = (state.get(key, ()) for state in (met, theirs, right))
        yield StateRow(
            label=key[1],
            depth=key[0],
            expected=expected,
            actual=actual if actual != expected else None,
            before=before if before != actual else None,
        )


def _in_order(right: Mapping[_Key, object], theirs: Mapping[_Key, object]) -> Iterator[_Key]:
    """Yield all keys in the order of `right`. A key that only `theirs` has follows the common key before it."""
    behind: dict[_Key | None, list[_Key]] = {}
    last: _Key | None = None
    for key in theirs:
        if key in right:
            last = key
        else:
            behind.setdefault(last, []).append(key)
    for place in (None, *right):
        if place is not None:
            yield place
        yield from behind.get(place, ())


def _fewer(rows: Sequence[StateRow]) -> list[StateRow | None]:
    """Choose wrong rows, then changed rows, then others until the panel is full. None means omitted rows."""
    wrong = [place for place, row in enumerate(rows) if row.actual is not None][:_MOST_WRONG]
    right = [place for place, row in enumerate(rows) if row.actual is None]
    right.sort(key=lambda place: rows[place].before is None)
    places = {*wrong, *right[: max(0, _MOST_ROWS - len(wrong))]}
    shown: list[StateRow | None] = []
    for place, row in enumerate(rows):
        if place in places:
            shown.append(row)
        elif not shown or shown[-1] is not None:
            shown.append(None)
    return shown
