"""Pictures for a record: the states of the failing cases that a report shows, expected beside actual.

Only these cases are drawn, because every state has to be decoded: the diagnosed case, then the plainest case of each
cause. If that is a hidden case, a public one is drawn too, because students see no other. As everywhere, the expected
state is what the reference makes of the program's own state before the call: an old mistake is not marked again at
every call.

Pictures are part of the record, because a report is a function of the record: cases or models may have changed when the
report is made again. A picture ends before a state of more than 32 KB or an unreadable one, and the page says when the
failing operation is not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.picture import Drawing, Panel, Part, Picture, Row, Scene, Shape
from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Outcome
from grader.result.draw_charts import charts
from grader.runtime.comparison import Comparison
from reference.oracle import CannotGoOn, CannotPoke

_MOST_PICTURES = 8
_MOST_STATE = 32_768
"""The most bytes of a drawn record; the picture of a larger one would be unreadable."""

_BEFORE, _AFTER = 14, 3
"""The number of scenes before the operation that went wrong, and after it."""

_MOST_ROWS = 24
"""The most rows of a panel; wrong rows come first, up to `_MOST_WRONG` of them even beyond this number."""

_MOST_WRONG = 60
_MOST_LINES = 700
"""The most lines of a program that reproduces a case; its checks and its malloc take 450 of them."""

_FEWEST_ALIKE = 3

_Key = tuple[int, str]
"""Depth and label of a row."""


def pictures(
    record: Record, comparisons: Sequence[Comparison], lab: Lab, drawing: Drawing = Drawing.ALL
) -> tuple[Picture, ...]:
    """Return the pictures that belong to this record of these comparisons."""
    by_name = {comparison.case.name: comparison for comparison in comparisons}
    if drawing is Drawing.ALL:
        return tuple(_picture(record, outcome, by_name[outcome.case], lab) for outcome in _shown(record))
    cases = record.first_cause.cases[:1] if record.first_cause is not None and drawing is Drawing.FIRST else ()
    return tuple(_picture(record, record.outcome(case), by_name[case], lab, first_only=True) for case in cases)


def _shown(record: Record) -> list[Outcome]:
    """The cases that a report for instructors shows, then those that a report for students shows instead."""
    shown = dict.fromkeys(cause.cases[0] for reader in reversed(Audience) for cause in _of(record, reader))
    return [record.outcome(case) for case in shown]


def _of(record: Record, reader: Audience) -> list[Cause]:
    return record.causes_for(reader)[:_MOST_PICTURES]


def _picture(
    record: Record, outcome: Outcome, comparison: Comparison, lab: Lab, *, first_only: bool = False
) -> Picture:
    """Draw one case; `first_only` draws only the operation that went wrong and the one before it."""
    operations = comparison.case.trace.operations
    first = record.first_finding(outcome)
    bad = min(max((first.operation if first is not None else None) or 1, 1), len(operations))
    rows = _Rows()
    scenes: list[Scene] = []
    before, after = (1, 0) if first_only else (_BEFORE, _AFTER)
    for number in range(max(0, bad - 1 - before), min(bad + after, len(operations))):
        scene = _scene(comparison, number, lab, rows)
        if scene is None:
            break
        scenes.append(scene)
        if not scene.reached:
            break
    return Picture(
        case=outcome.case,
        operation=bad,
        rows=tuple(rows.stored),
        scenes=tuple(scenes),
        charts=tuple(charts(comparison, bad, lab)),
        program=() if first_only else _program(comparison.case, bad - 1, lab),
    )


def _program(case: Case, operation: int, lab: Lab) -> tuple[str, ...]:
    lines = lab.reproduce(case, operation).splitlines()
    return tuple(lines) if len(lines) <= _MOST_LINES else ()


def _scene(comparison: Comparison, number: int, lab: Lab, rows: _Rows) -> Scene | None:
    """Draw one operation, counted from 0; None for a state that is too large or not defined by the handout."""
    steps = comparison.played.steps
    lengths = [len(step.record) for step in steps[max(0, number - 1) : number + 1]]
    if max(lengths, default=0) > _MOST_STATE:
        return None  # a program may report states of megabytes
    actual = steps[number].record if number < len(steps) else None
    judged = any(deviation.operation == number for deviation in comparison.deviations)
    model = lab.model(comparison.case.trace)
    try:
        expected = actual if actual is not None and not judged else _expected(comparison, number, lab)
        if max(len(expected), len(actual or b"")) > _MOST_STATE:
            return None
        right = tuple(lab.picture(model.describe(expected)))
        theirs = right if actual in (None, expected) else tuple(lab.picture(model.describe(actual or b"")))
    except (CannotGoOn, CannotPoke, OverflowError):
        return None
    return Scene(operation=number + 1, reached=actual is not None, panels=tuple(_panels(right, theirs, rows)))


def _expected(comparison: Comparison, number: int, lab: Lab) -> bytes:
    """Return the record that the operation should have left. Raises `CannotGoOn` and `CannotPoke`."""
    model = lab.model(comparison.case.trace)
    if number:
        model.restore(comparison.played.steps[number - 1].record)
    model.apply(comparison.case.trace.operations[number])
    return model.record()


@dataclass(slots=True)
class _Rows:
    """The rows of a picture, each stored once."""

    stored: list[Row] = field(default_factory=list)
    places: dict[Row, int] = field(default_factory=dict)

    def place(self, row: Row) -> int:
        if row not in self.places:
            self.places[row] = len(self.stored)
            self.stored.append(row)
        return self.places[row]


def _panels(right: Sequence[Part], theirs: Sequence[Part], rows: _Rows) -> Iterator[Panel]:
    """Yield both sides of each part, in the order of the expected side; a part that is not expected comes last."""
    wanted, actual = ({part.title: part for part in side} for side in (right, theirs))
    for title in dict.fromkeys([*wanted, *actual]):
        part = wanted.get(title) or actual[title]
        every = list(_rows(wanted.get(title), actual.get(title)))
        if not every:
            continue
        alike = list(_alike(every)) if part.shape is Shape.GRID and len(every) > _MOST_ROWS else every
        shown = _fewer(alike)
        yield Panel(
            title=title,
            shape=part.shape,
            columns=part.columns,
            legend={
                sign: side[title].legend[sign]
                for side in (wanted, actual)
                if title in side
                for sign in side[title].legend
            },
            rows=tuple(map(rows.place, shown)),
            omitted=len(alike) - len(shown),
        )


def _rows(expected_part: Part | None, actual_part: Part | None) -> Iterator[Row]:
    right = expected_part.lines if expected_part is not None else {}
    theirs = actual_part.lines if actual_part is not None else {}
    for key in _in_order(right, theirs):
        depth, label = key
        expected, actual = right.get(key, ()), theirs.get(key, ())
        yield Row(label=label, depth=depth, expected=expected, actual=actual if actual != expected else None)


def _in_order(right: Mapping[_Key, object], theirs: Mapping[_Key, object]) -> Iterator[_Key]:
    """Yield all keys in the order of `right`; a key of `theirs` alone follows the common key before it."""
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


def _alike(rows: Sequence[Row]) -> Iterator[Row]:
    """Merge at least `_FEWEST_ALIKE` neighbouring rows that differ only in their labels into one row."""
    for _, same in groupby(rows, key=lambda row: (row.depth, row.expected, row.actual)):
        run = list(same)
        if len(run) < _FEWEST_ALIKE:
            yield from run
        else:
            first, last = run[0], run[-1]
            yield Row(
                label=f"{first.label} to {last.label}", depth=first.depth, expected=first.expected, actual=first.actual
            )


def _fewer(rows: Sequence[Row]) -> list[Row]:
    """Choose the wrong rows, then others while there is room; the order of the rows stays."""
    wrong = [row for row in rows if row.actual is not None][:_MOST_WRONG]
    room = max(0, _MOST_ROWS - len(wrong))
    shown: list[Row] = []
    for row in rows:
        if row.actual is None and room:
            room -= 1
            shown.append(row)
        elif row.actual is not None and len(wrong) > 0:
            wrong = wrong[1:]
            shown.append(row)
    return shown
