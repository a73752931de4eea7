"""Charts of a whole case for a terminal: tracks and levels below common columns, or bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from grader.core.picture import Chart, ChartCell, ComparedChart
from grader.report.page import Page, Span, bad, dim, pad, strong, width_of

_INDENT = 4
_BAR = 40
"""The columns of a whole bar."""

_Line = list[Span]


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
    levels = [["" if value is None else f"{value}/{level.most}" for value in level.values] for level in chart.levels]
    columns = [chart.columns, *(track.cells for track in chart.tracks), *levels]
    wide = max((width_of(text) for column in columns for text in column), default=0) + 2
    wrong_cells = {wrong, *chart.marks}
    first = max(0, len(chart.columns) - max(1, (room - label) // wide))
    if chart.columns:
        yield [strong(pad(name, label)), *(dim(f"{name:^{wide}}") for name in chart.columns[first:])]
    for place, track in enumerate(chart.tracks):
        cells = [Span(f"{text:^{wide}}") for text in track.cells]
        for wrong_cell in wrong_cells:
            if wrong_cell is not None and wrong_cell.track == place and wrong_cell.column < len(cells):
                marked = f">{track.cells[wrong_cell.column] or ' '}<"
                cells[wrong_cell.column] = bad(f"{marked:^{wide}}")
        yield [Span(pad(track.label, label)), *cells[first:]]
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


def _bar_label(chart: Chart) -> int:
    return max((width_of(bar.label) for bar in (*chart.bars, *chart.known)), default=0)


def _bars(chart: Chart, name: str, label: int) -> Iterator[_Line]:
    """Yield bars with their shares in percent, then those to compare with."""
    bars = (*chart.bars, *chart.known)
    if bars and name:
        yield [strong(name)]
    for bar in bars:
        shares = [100 * part / (sum(bar.parts) or 1) for part in bar.parts]
        ends = [round(end * _BAR / 100) for end in accumulate(shares, initial=0.0)]
        drawn = "".join(sign * (end - start) for sign, (start, end) in zip(chart.legend, pairwise(ends), strict=False))
        percent = dim(" ".join(f"{share:5.1f}" for share in shares))
        yield [Span(pad(bar.label, label)), Span(f" ▏{drawn}▕ "), percent]
