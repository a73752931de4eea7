"""Charts of the case with which a report begins, for a terminal: the program's own run above the expected one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.core.chart import Chart, ComparedChart, Place, Shares
from grader.report.escape import cells, escape
from grader.report.page import Page, Span, Style, dim, pad, strong

_INDENT = 4
_BAR = 40
"""The columns of a whole bar."""

_Line = list[Span]


def show_charts(page: Page, charts: Sequence[ComparedChart]) -> None:
    """Write the charts in which something is wrong, as far as they fit in the width."""
    for chart in charts:
        if not shows_mistake(chart):
            continue
        both = (chart.actual, chart.expected)
        room = page.width - _INDENT
        page.blank()
        page.write(dim(chart.expected.title), indent=2)
        for name, side, wrong in (("yours", chart.actual, chart.wrong), ("expected", chart.expected, None)):
            for line in chart_lines(side, name, wrong, room) if has_content(side) else ():
                page.crop(*line, indent=_INDENT)
        if legend := legend_of(*both):
            page.write(dim(legend), indent=_INDENT)


def shows_mistake(chart: ComparedChart) -> bool:
    """Whether the two runs differ in it, or the program's own has something that no right run has."""
    differs = chart.wrong is not None or chart.actual.bars != chart.expected.bars
    return differs or (has_content(chart.actual) and not has_content(chart.expected))


def chart_lines(chart: Chart, name: str = "", wrong: Place | None = None, room: int = 96) -> Iterator[_Line]:
    """Yield the lines of a chart; the last columns of one that is wider than `room`. `wrong` is the cell to mark."""
    labels = [*(track.label for track in chart.tracks), *(level.label for level in chart.levels)]
    label = max(map(_wide, [name and "expected", *labels]))
    levels = [[_level(value, level.most) for value in level.values] for level in chart.levels]
    columns = [chart.columns, *(track.cells for track in chart.tracks), *levels]
    wide = max((_wide(text) for column in columns for text in column), default=0) + 2
    wrong_cells = {wrong, *chart.marks}
    first = max(0, len(chart.columns) - max(1, (room - label) // wide))
    if chart.columns:
        yield [strong(pad(name, label)), *(dim(f"{name:^{wide}}") for name in chart.columns[first:])]
    for place, track in enumerate(chart.tracks):
        yield [
            Span(pad(track.label, label)),
            *(
                _cell(text, wide, is_wrong=Place(column, place) in wrong_cells)
                for column, text in enumerate(track.cells)
                if column >= first
            ),
        ]
    for level, texts in zip(chart.levels, levels, strict=True):
        yield [dim(pad(level.label, label)), *(dim(f"{text:^{wide}}") for text in texts[first:])]
    if chart.arrows:
        words = [f"{_name_of(chart, arrow.start)} → {_name_of(chart, arrow.end)}" for arrow in chart.arrows]
        yield [dim("events: " + ", ".join(words))]
    yield from _bars(chart, name)


def _name_of(chart: Chart, place: Place) -> str:
    """Return the names of a cell's track and column; one that the chart lacks has none."""
    tracks = [track.label for track in chart.tracks[place.track : place.track + 1]]
    return " ".join([*tracks, *chart.columns[place.column : place.column + 1]])


def has_content(chart: Chart) -> bool:
    """Whether there is anything to draw."""
    return bool(chart.tracks or chart.levels or chart.bars)


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


def _bars(chart: Chart, name: str) -> Iterator[_Line]:
    """Yield bars with their shares in percent, then those to compare with."""
    bars = (*chart.bars, *chart.known)
    if bars and name:
        yield [strong(name)]
    label = max((_wide(bar.label) for bar in bars), default=0)
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


def _wide(text: str) -> int:
    return cells(escape(text))
