"""The state around the operation that went wrong, for a terminal: before it, after it and expected, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from grader.report.compared import Compared, ComparedPanel, Mark
from grader.report.escape import cells, escape
from grader.report.page import Page, Span, Style, dim, pad, strong
from grader.report.start_here import Focus

_MOST_COLUMNS = 80
_INDENT = 4
_GAP = "   "
"""The space between two states."""

_STYLES = {
    Mark.NONE: Style.PLAIN,
    Mark.FIRST: Style.BAD,
    Mark.WRONG: Style.BAD,
    Mark.RIGHT: Style.GOOD,
    Mark.CHANGED: Style.STRONG,
}

_WRONG = frozenset({Mark.FIRST, Mark.WRONG, Mark.RIGHT})
_Cells = Sequence[tuple[str, Mark]]


def show_states(page: Page, shown: Focus | None) -> None:
    """Write what the operation with which the report begins left wrong, if that may be shown and was drawn.

    A row of the table has one label and its cells in each state. When the table is too wide, the state before the
    operation is left out, then what is right. When it is still too wide, nothing is written.
    """
    states = shown.states if shown is not None else None
    if states is None or not states.is_wrong:
        return
    sides = {"before": states.before, "yours": states.yours, "expected": states.expected}
    present = {name: panels for name, panels in sides.items() if panels}
    after = {name: panels for name, panels in present.items() if name != "before"}
    for candidate in (present, after, _wrong_only(present), _wrong_only(after)):
        table = _Table(candidate)
        if table.width <= min(page.width, _MOST_COLUMNS):
            page.labelled("State", "before and after the operation" if "before" in candidate else "after the operation")
            table.write(page)
            _legend(page, states)
            return


def _wrong_only(sides: Mapping[str, Sequence[ComparedPanel]]) -> dict[str, list[ComparedPanel]]:
    """Return of each state the rows that are wrong in some state, without panels that have none."""
    wrong: dict[str, list[ComparedPanel]] = {name: [] for name in sides}
    for panels in zip(*sides.values(), strict=True):
        places = [
            place
            for place, rows in enumerate(zip(*(panel.rows for panel in panels), strict=True))
            if any(mark in _WRONG for _, row in rows for _, mark in row)
        ]
        for name, panel in zip(sides, panels, strict=True):
            if places:
                wrong[name].append(replace(panel, rows=tuple(panel.rows[place] for place in places)))
    return wrong


class _Table:
    """The panels of some states as a table, with the widths of its columns."""

    def __init__(self, sides: Mapping[str, Sequence[ComparedPanel]]) -> None:
        self.names = list(sides)
        self.panels = list(zip(*sides.values(), strict=True))
        labels = (_label(panels[0], label) for panels in self.panels for label, _ in panels[0].rows)
        self.label = max(map(_wide, labels), default=0)
        self.columns = [_widths(panels) for panels in self.panels]
        inner = max((sum(widths) + len(widths) - 1 for widths in self.columns), default=0)
        self.side = max(inner, *map(len, self.names))
        self.width = _INDENT + self.label + len(self.names) * (len(_GAP) + self.side)

    def write(self, page: Page) -> None:
        """Write the table, with the names of states above it and the names of columns above each panel that has any."""
        page.crop(dim(" " * self.label), *(strong(_GAP + pad(name, self.side)) for name in self.names), indent=_INDENT)
        for panels, widths in zip(self.panels, self.columns, strict=True):
            columns = panels[0].columns
            if columns:
                above = " ".join(f"{name:>{wide}}" for name, wide in zip_longest(columns, widths, fillvalue=""))
                page.crop(dim(" " * self.label), *[dim(_GAP + pad(above, self.side))] * len(panels), indent=_INDENT)
            for rows in zip(*(panel.rows for panel in panels), strict=True):
                parts = [Span(pad(_label(panels[0], rows[0][0]), self.label))]
                for _, row in rows:
                    parts += [Span(_GAP), *self._cells(row, widths)]
                page.crop(*parts, indent=_INDENT)

    def _cells(self, row: _Cells, widths: Sequence[int]) -> Iterator[Span]:
        """Yield the cells of one row in one state, filled up to the width of a state."""
        used = 0
        for place, ((text, mark), wide) in enumerate(zip(row, widths, strict=False)):
            yield Span(" " * (wide - _wide(_marked(text, mark)) + (place > 0)))
            yield Span(_marked(text, mark), _STYLES[mark])
            used += wide + (place > 0)
        yield Span(" " * (self.side - used))


def _label(panel: ComparedPanel, label: str) -> str:
    """Return the label of a row; a chain has one row, and its title is the label."""
    return label or panel.title


def _widths(panels: Sequence[ComparedPanel]) -> list[int]:
    """Return the widths of a panel's columns: each that of its name or of its widest cell in any state."""
    rows: Iterator[_Cells] = (row for panel in panels for _, row in panel.rows)
    shown = [[_wide(_marked(text, mark)) for text, mark in row] for row in rows]
    names = [len(name) for name in panels[0].columns]
    return [max(column) for column in zip_longest(names, *shown, fillvalue=0)]


def _marked(text: str, mark: Mark) -> str:
    return f">{text}<" if mark is Mark.FIRST else text


def _wide(text: str) -> int:
    return cells(escape(text))


def _legend(page: Page, states: Compared) -> None:
    shown = {
        text
        for panels in (states.before, states.yours, states.expected)
        for panel in panels
        for _, row in panel.rows
        for text, _ in row
    }
    meanings = ["> <: what is wrong first"]
    meanings += [f"{sign}: {meaning}" for sign, meaning in states.legend.items() if sign in shown]
    page.write(dim("; ".join(meanings)), indent=_INDENT)
