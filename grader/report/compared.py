"""The operation that went wrong as three states side by side: before it, after it, and the expected state after it.

Only what the operation changed or had to change is shown. Neighbouring columns that are equal in all three states are
merged, so that the first wrong cell is easy to find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from grader.core.picture import Shape
from grader.core.verdict import Finding
from grader.report.drawn import DrawnPanel, DrawnRow, DrawnScene, cell_name, field_names

_MOST_ROWS = 5
"""The maximum number of rows of one panel."""
_MOST_CELLS = 12
"""The maximum number of cells of a row whose cells have no names."""

_NUMBERED = r"(\D*)(\d+)(?: to \1(\d+))?"
"""The label of one numbered row, or of a range of equal rows (`block 0 to block 38`)."""
_LONG = r"-?\d{7,}"
"""A number so long that it would leave no room for others."""
_LONG_SHOWN = 5

_Met = Mapping[tuple[str, str], Sequence[str]]
"""The cells before the operation, by panel and row."""


class Mark(StrEnum):
    """How a cell is marked."""

    NONE = ""
    FIRST = "first"
    """Where the case went wrong."""
    WRONG = "wrong"
    """Also wrong; usually a consequence."""
    RIGHT = "right"
    """The expected value of a wrong cell."""
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPanel:
    """A part of one of the three states: column names, and rows of a label and cells with their marks."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, Mark], ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The three states; `before` is empty at the first operation, `yours` when the call did not return."""

    before: tuple[ComparedPanel, ...]
    yours: tuple[ComparedPanel, ...]
    expected: tuple[ComparedPanel, ...]
    is_wrong: bool
    legend: Mapping[str, str]
    """The meaning of cells that hold only a sign."""


class _Cell(NamedTuple):
    """One place in the three states."""

    before: str
    yours: str
    expected: str
    mark: Mark = Mark.NONE


class _Row(NamedTuple):
    """One row of a panel in the three states."""

    row: DrawnRow
    cells: tuple[_Cell, ...]

    @property
    def speaks(self) -> bool:
        """Whether anything in the row is wrong, changed or had to change."""
        return any(cell.mark is not Mark.NONE or cell.expected != cell.before for cell in self.cells)


def compared(scenes: Sequence[DrawnScene], at: int, first: Finding | None) -> Compared | None:
    """Return the three states of the scene at position `at`, None when nothing in it changed or is wrong."""
    scene = scenes[at]
    met: dict[tuple[str, str], Sequence[str]] = {}
    for panel in scenes[at - 1].panels if at else ():
        met |= {(panel.title, row.label): [cell.actual for cell in row.cells] for row in panel.rows}
    cells = [panel for panel in scene.panels if panel.shape is not Shape.SENTENCES]
    shown = [(panel, _selected_rows([_row(panel, row, met, known=at > 0) for row in panel.rows])) for panel in cells]
    tables = [(panel, _together(panel, rows)) for panel, rows in _with_first(shown, first) if rows]
    if not tables:
        return None
    return Compared(
        before=_state(tables, lambda cell: (cell.before, Mark.NONE)) if at else (),
        yours=_state(tables, lambda cell: (cell.yours, cell.mark)) if scene.reached else (),
        expected=_state(tables, lambda cell: (cell.expected, _mark_expected(cell))),
        is_wrong=any(cell.mark is Mark.FIRST for _, table in tables for row in table.rows for cell in row.cells),
        legend={sign: meaning for panel, _ in tables for sign, meaning in panel.legend.items()},
    )


def _row(panel: DrawnPanel, row: DrawnRow, met: _Met, *, known: bool) -> _Row:
    before = _met(met, panel.title, row.label)
    cells = []
    for place, cell in enumerate(row.cells):
        yours, wanted = "" if row.missing else cell.actual, "" if row.extra else cell.expected
        was = wanted if not known else before[place] if place < len(before) else ""
        mark = Mark.WRONG if yours != wanted else Mark.CHANGED if yours != was else Mark.NONE
        cells.append(_Cell(was, yours, wanted, mark))
    if not panel.columns:  # for example a list that has become shorter
        cells += [_Cell(was, "", "", Mark.CHANGED) for was in before[len(row.cells) :]]
    return _Row(row, tuple(cells))


def _met(met: _Met, title: str, label: str) -> Sequence[str]:
    """Return the row's cells before the operation. Rows that were equal then are one row, `block 0 to block 38`."""
    number = re.fullmatch(_NUMBERED, label)
    if number is None or (title, label) in met:
        return met.get((title, label), ())
    first, last = int(number[2]), int(number[3] or number[2])
    for (other, name), cells in met.items():
        run = re.fullmatch(_NUMBERED, name)
        alike = run is not None and (other, run[1]) == (title, number[1])
        if run is not None and alike and int(run[2]) <= first and last <= int(run[3] or run[2]):
            return cells
    return ()


def _selected_rows(rows: Sequence[_Row]) -> list[_Row]:
    """Return at most `_MOST_ROWS` wrong or changed rows, in their order; wrong rows have priority."""
    telling = [row for row in rows if row.speaks]
    most = sorted(telling, key=lambda row: not row.row.wrong)[:_MOST_ROWS]
    return [row for row in telling if row in most]


_Shown = list[tuple[DrawnPanel, list[_Row]]]


def _with_first(shown: _Shown, difference: Finding | None) -> _Shown:
    """Mark one cell as the first: the wrong cell that the difference names, else the first wrong cell."""
    names = field_names(difference.field) if difference is not None and difference.field else ()
    wrong = [
        (panel, row, place)
        for panel, rows in shown
        for row in rows
        for place, cell in enumerate(row.cells)
        if cell.mark is Mark.WRONG
    ]
    if not wrong:
        return shown
    panel, first, place = next((at for at in wrong if cell_name(at[0], at[1].row, at[2]) in names), wrong[0])
    cells = tuple(cell._replace(mark=Mark.FIRST) if at == place else cell for at, cell in enumerate(first.cells))
    marked = first._replace(cells=cells)
    return [
        (shown_panel, [marked if shown_panel is panel and row is first else row for row in rows])
        for shown_panel, rows in shown
    ]


class _Table(NamedTuple):
    """The shown rows of a panel, with their column names."""

    columns: tuple[str, ...]
    rows: tuple[_Row, ...]


def _together(panel: DrawnPanel, rows: Sequence[_Row]) -> _Table:
    """Merge neighbouring columns that are equal in all rows and states."""
    names = [name.rpartition(" ")[2] for name, _ in panel.columns]
    wide = [row for row in rows if len(row.cells) == len(names) > 1]
    if not wide:
        return _Table((), tuple(row._replace(cells=row.cells[:_MOST_CELLS]) for row in rows))
    alike = [[row.cells[place] for row in wide] for place in range(len(names))]
    runs = [list(run) for _, run in groupby(range(len(names)), key=lambda place: alike[place])]
    columns = tuple(names[run[0]] if len(run) == 1 else f"{names[run[0]]}–{names[run[-1]]}" for run in runs)
    starts = [run[0] for run in runs]
    return _Table(
        columns,
        tuple(
            row._replace(cells=tuple(row.cells[place] for place in starts)) if len(row.cells) == len(names) else row
            for row in rows
        ),
    )


def _state(
    tables: Sequence[tuple[DrawnPanel, _Table]], text_and_mark: Callable[[_Cell], tuple[str, Mark]]
) -> tuple[ComparedPanel, ...]:
    return tuple(
        ComparedPanel(
            title=panel.title,
            columns=table.columns,
            rows=tuple((label, _shown(panel, map(text_and_mark, row.cells))) for label, row in _labelled(table.rows)),
        )
        for panel, table in tables
    )


def _shown(panel: DrawnPanel, cells: Iterable[tuple[str, Mark]]) -> tuple[tuple[str, Mark], ...]:
    """Return a row as it is drawn in one state. If columns have no names, empty cells at its end are dropped."""
    shown = [*map(_shortened, cells)]
    while shown and not panel.columns and not shown[-1][0] and shown[-1][1] in (Mark.NONE, Mark.CHANGED):
        shown.pop()
    return tuple(shown)


def _shortened(cell: tuple[str, Mark]) -> tuple[str, Mark]:
    """Shorten a long number, unless its mark is FIRST or RIGHT."""
    text, mark = cell
    if mark in (Mark.FIRST, Mark.RIGHT) or not re.fullmatch(_LONG, text):
        return cell
    return f"{text[:_LONG_SHOWN]}…", mark


def _labelled(rows: Sequence[_Row]) -> Iterator[tuple[str, _Row]]:
    """Return each row with its label. Below its parent's row, a label omits the parent's name."""
    parent = ""
    for row in rows:
        head, colon, tail = row.row.label.rpartition(": ")
        yield (f"└ {tail}" if colon and head == parent else row.row.label), row
        if not colon:
            parent = row.row.label


def _mark_expected(cell: _Cell) -> Mark:
    """Return the mark of the expected cell: RIGHT where the actual cell is wrong, CHANGED where it had to change."""
    if cell.mark in (Mark.FIRST, Mark.WRONG):
        return Mark.RIGHT
    return Mark.CHANGED if cell.expected != cell.before else Mark.NONE
