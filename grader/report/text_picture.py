"""Pictures for a terminal: the states around an operation side by side, and charts of a whole case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from grader.core.picture import Chart, ChartCell, ComparedChart, Shares
from grader.report.page import Page, Span, Style, dim, pad, strong, width_of
from grader.report.picture import CellMark, DrawnCell, DrawnPanel, DrawnRow, Side, merged_columns
from grader.report.start_here import Focus

_MOST_COLUMNS = 80
_INDENT = 4
_GAP = "   "
"""The space between two states."""
_MOST_CELLS = 24
"""The maximum number of cells of a row of a whole state."""
_BAR = 40
"""The columns of a whole bar of a chart."""

_STYLES = {
    CellMark.NONE: Style.PLAIN,
    CellMark.FIRST: Style.BAD,
    CellMark.WRONG: Style.BAD,
    CellMark.RIGHT: Style.GOOD,
    CellMark.CHANGED: Style.STRONG,
}

_Line = list[Span]


def show_states(page: Page, shown: Focus | None) -> None:
    """Write what the operation with which the report begins left wrong, if that may be shown and was drawn.

    A row of the table has one label and its cells in each state. When the table is too wide, the state before the
    operation is left out, then what is right. When it is still too wide, nothing is written.
    """
    scene = shown.scene if shown is not None else None
    if scene is None or not scene.is_wrong:
        return
    after = [side for side in scene.sides if side is not Side.BEFORE]
    wrong = [
        replace(panel, rows=tuple(row for row in panel.rows if row.wrong)) for panel in scene.panels if panel.wrong
    ]
    for sides, panels in ((scene.sides, scene.panels), (after, scene.panels), (scene.sides, wrong), (after, wrong)):
        table = _SideBySide(panels, sides)
        if table.width <= min(page.width, _MOST_COLUMNS):
            page.labelled("State", "before and after the operation" if Side.BEFORE in sides else "after the operation")
            table.write(page)
            _legend(page, "> <: what is wrong first", panels, sides)
            page.write(dim("expected: your state with the wrong cells corrected"), indent=_INDENT)
            return


def show_state(page: Page, panels: Sequence[DrawnPanel]) -> None:
    """Write the whole state after an operation, each panel below its title; what the operation changed is strong."""
    merged = [merged_columns(_folded(panel), numbered_only=True) for panel in panels]
    _SideBySide(merged, [Side.EXPECTED], titled=True).write(page)
    _legend(page, "", merged, [Side.EXPECTED])


def _folded(panel: DrawnPanel) -> DrawnPanel:
    """Return a panel without the middle of rows that have very many cells without names."""
    gap = DrawnCell(before="...", yours="...", expected="...")
    return replace(
        panel,
        rows=tuple(
            replace(row, cells=(*row.cells[: _MOST_CELLS - 4], gap, *row.cells[-3:]))
            if len(row.cells) > _MOST_CELLS and not panel.columns
            else row
            for row in panel.rows
        ),
    )


class _SideBySide:
    """The panels of some states as a table, with the widths of its columns. `titled`: panels have their titles, else
    only the first of each object has that one's name.
    """

    def __init__(self, panels: Sequence[DrawnPanel], sides: Sequence[Side], *, titled: bool = False) -> None:
        self.panels, self.sides, self.titled = panels, sides, titled
        labels = [max((width_of(_label(panel, row)) for row in panel.rows), default=0) for panel in panels]
        widest = max(labels, default=0)
        self.titles = [panel.title for panel in panels] if titled else list(_scopes(panels))
        widest = max([widest, *(width_of(title) for title in self.titles if not titled)])
        titles = [width_of(title) if titled else widest for title in self.titles]
        self.labels = list(map(max, labels, titles))
        self.columns = [_widths(panel, sides) for panel in panels]
        inner = max((sum(widths) + len(widths) - 1 for widths in self.columns), default=0)
        self.side = max(inner, *map(len, sides))
        self.width = _INDENT + widest + len(sides) * (len(_GAP) + self.side)

    def write(self, page: Page) -> None:
        """Write the table, with the names of several states above it and the names of columns above their panel."""
        if len(self.sides) > 1:
            names = (strong(_GAP + pad(side, self.side)) for side in self.sides)
            page.crop(dim(" " * self.labels[0]), *names, indent=_INDENT)
        for panel, label, widths, name in zip(self.panels, self.labels, self.columns, self.titles, strict=True):
            title = name if not self.titled or any(row.label for row in panel.rows) else ""
            if panel.columns or title:
                above = " ".join(f"{name:>{wide}}" for name, wide in zip(panel.columns, widths, strict=False))
                columns = [dim(_GAP + pad(above, self.side))] * len(self.sides)
                self._line(page, label, [dim(pad(title, label)), *columns])
            for row in panel.rows:
                parts = [Span(pad(_label(panel, row), label))]
                for side in self.sides:
                    parts += [Span(_GAP), *self._cells(panel.cells(row, side), widths)]
                self._line(page, label, parts)
            if self.titled and panel.omitted:
                page.write(dim(f"and {panel.omitted} rows more"), indent=_INDENT)

    def _line(self, page: Page, label: int, parts: _Line) -> None:
        """Write a line. In a table of one state, one that is too long goes on below its cells."""
        if len(self.sides) > 1:
            page.crop(*parts, indent=_INDENT)
        else:
            page.write(*parts, indent=_INDENT, hang=_INDENT + label + len(_GAP))

    def _cells(self, row: Sequence[tuple[str, CellMark]], widths: Sequence[int]) -> Iterator[Span]:
        """Yield the cells of one row in one state, filled up to the width of a state."""
        used = 0
        for place, ((text, mark), wide) in enumerate(zip(row, widths, strict=False)):
            yield Span(" " * (wide - width_of(_marked(text, mark)) + (place > 0)))
            yield Span(_marked(text, mark), _STYLES[mark])
            used += wide + (place > 0)
        yield Span(" " * (self.side - used))


def _scopes(panels: Sequence[DrawnPanel]) -> Iterator[str]:
    """Yield the object that each panel is a part of, empty where that is the object of the one before it."""
    before = ""
    for panel in panels:
        yield panel.scope if panel.scope != before else ""
        before = panel.scope


def _label(panel: DrawnPanel, row: DrawnRow) -> str:
    """Return the label of a row; a chain may have one row, and its title is the label."""
    return row.label or panel.title


def _widths(panel: DrawnPanel, sides: Sequence[Side]) -> list[int]:
    """Return the widths of a panel's columns: each that of its name or of its widest cell in any state."""
    rows = [panel.cells(row, side) for row in panel.rows for side in sides]
    shown = [[width_of(_marked(text, mark)) for text, mark in row] for row in rows]
    names = [len(name) for name in panel.columns]
    return [max(column) for column in zip_longest(names, *shown, fillvalue=0)]


def _marked(text: str, mark: CellMark) -> str:
    return f">{text}<" if mark is CellMark.FIRST else text


def _legend(page: Page, begin: str, panels: Sequence[DrawnPanel], sides: Sequence[Side]) -> None:
    shown = {text for panel in panels for row in panel.rows for side in sides for text, _ in panel.cells(row, side)}
    signs: Mapping[str, str] = {sign: text for panel in panels for sign, text in panel.legend.items() if sign in shown}
    meanings = [*filter(None, [begin]), *(f"{sign}: {meaning}" for sign, meaning in signs.items())]
    if meanings:
        page.write(dim("; ".join(meanings)), indent=_INDENT)


# ---------------------------------------------------------------- charts


def show_charts(page: Page, charts: Sequence[ComparedChart]) -> None:
    """Write the charts in which something is wrong, as far as they fit in the width."""
    for chart in charts:
        if not chart.is_wrong:
            continue
        both = (chart.actual, chart.expected)
        label = max(map(_bar_label, both))
        room = page.width - _INDENT
        page.blank()
        page.write(dim(chart.expected.title), indent=2)
        for name, side, wrong in (("yours", chart.actual, chart.wrong), ("expected", chart.expected, None)):
            for line in chart_lines(side, name, wrong, room, bar_label=label) if side.has_content else ():
                page.crop(*line, indent=_INDENT)
        if legend := legend_of(*both):
            page.write(dim(legend), indent=_INDENT)


def chart_lines(
    chart: Chart, name: str = "", wrong: ChartCell | None = None, room: int = 96, *, bar_label: int = 0
) -> Iterator[_Line]:
    """Yield the lines of a chart; the last columns of one that is wider than `room`. `wrong` is the cell to mark.

    `bar_label` is the least width of the labels of bars, so that bars of two charts begin in the same column.
    """
    labels = [*(track.label for track in chart.tracks), *(level.label for level in chart.levels)]
    label = max(map(width_of, [name and "expected", *labels]))
    levels = [[_level(value, level.most) for value in level.values] for level in chart.levels]
    columns = [chart.columns, *(track.cells for track in chart.tracks), *levels]
    wide = max((width_of(text) for column in columns for text in column), default=0) + 2
    wrong_cells = {wrong, *chart.marks}
    first = max(0, len(chart.columns) - max(1, (room - label) // wide))
    if chart.columns:
        yield [strong(pad(name, label)), *(dim(f"{name:^{wide}}") for name in chart.columns[first:])]
    for place, track in enumerate(chart.tracks):
        yield [
            Span(pad(track.label, label)),
            *(
                _cell(text, wide, is_wrong=ChartCell(column, place) in wrong_cells)
                for column, text in enumerate(track.cells)
                if column >= first
            ),
        ]
    for level, texts in zip(chart.levels, levels, strict=True):
        yield [dim(pad(level.label, label)), *(dim(f"{text:^{wide}}") for text in texts[first:])]
    if chart.arrows:
        words = [f"{_name_of(chart, arrow.start)} → {_name_of(chart, arrow.end)}" for arrow in chart.arrows]
        yield [dim("events: " + ", ".join(words))]
    yield from _bars(chart, name, max(bar_label, _bar_label(chart)))


def _name_of(chart: Chart, place: ChartCell) -> str:
    """Return the names of a cell's track and column; one that the chart lacks has none."""
    tracks = [track.label for track in chart.tracks[place.track : place.track + 1]]
    return " ".join([*tracks, *chart.columns[place.column : place.column + 1]])


def legend_of(*charts: Chart) -> str:
    """Return the meanings of the signs that are used."""
    used = {text[:1] for chart in charts for track in chart.tracks for text in track.cells}
    legend = {sign: meaning for chart in charts for sign, meaning in chart.legend.items()}
    has_bars = any(chart.bars for chart in charts)
    return "; ".join(f"{sign} {meaning}" for sign, meaning in legend.items() if has_bars or sign in used)


def _cell(text: str, wide: int, *, is_wrong: bool) -> Span:
    shown = f">{text or ' '}<" if is_wrong else text
    return Span(f"{shown:^{wide}}", Style.BAD if is_wrong else Style.PLAIN)


def _level(value: int | None, most: int) -> str:
    return "" if value is None else f"{value}/{most}"


def _bar_label(chart: Chart) -> int:
    return max((width_of(bar.label) for bar in (*chart.bars, *chart.known)), default=0)


def _bars(chart: Chart, name: str, label: int) -> Iterator[_Line]:
    """Yield bars with their shares in percent, then those to compare with."""
    bars = (*chart.bars, *chart.known)
    if bars and name:
        yield [strong(name)]
    for bar in bars:
        shares = percent(bar)
        drawn = "".join(
            sign * (round(sum(shares[: place + 1]) * _BAR / 100) - round(sum(shares[:place]) * _BAR / 100))
            for place, sign in enumerate(chart.legend)
        )
        yield [
            Span(pad(bar.label, label)),
            Span(f" ▏{drawn}▕ "),
            dim(" ".join(f"{share:5.1f}" for share in shares)),
        ]


def percent(bar: Shares) -> list[float]:
    """Return the parts of a bar in percent of the whole."""
    whole = sum(bar.parts)
    return [100 * part / whole if whole else 0.0 for part in bar.parts]
