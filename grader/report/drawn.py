"""A picture of a record as cells to draw: which are wrong, which the operation changed, and what is wrong in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from grader.core.picture import Panel, Picture, Row, Scene, Shape
from grader.core.verdict import Finding, Outcome, StepShown

_MOST_WORDS = 6

_Before = Mapping[tuple[str, str], Sequence[str]]
"""The cells before an operation, by panel and row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCell:
    """One cell; it is wrong when `expected` differs from `actual`."""

    expected: str
    actual: str
    changed: bool = False
    """Whether it differs from its value before this operation."""

    @property
    def wrong(self) -> bool:
        """Whether the cell is wrong and must be marked."""
        return self.expected != self.actual


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRow:
    """A row of a panel."""

    label: str
    depth: int
    cells: tuple[DrawnCell, ...]
    missing: bool = False
    """Whether the row is expected, but absent."""
    extra: bool = False
    """Whether the row is present, but not expected."""

    @property
    def wrong(self) -> bool:
        """Whether any cell of the row is wrong."""
        return any(cell.wrong for cell in self.cells)

    @property
    def one_sided(self) -> bool:
        """Whether the row is wrong as a whole."""
        return self.missing or self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPanel:
    """A part of a state. `columns` are names with whether a cell below is wrong, in rows that are not one-sided."""

    title: str
    shape: Shape
    columns: tuple[tuple[str, bool], ...]
    legend: dict[str, str]
    rows: tuple[DrawnRow, ...]
    omitted: int

    @property
    def wrong(self) -> bool:
        """Whether any row of the panel is wrong."""
        return any(row.wrong for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnScene:
    """The state after one operation."""

    step: StepShown
    reached: bool
    panels: tuple[DrawnPanel, ...]
    words: tuple[str, ...]
    """What is wrong, one sentence each, at most `_MOST_WORDS`."""
    more: int
    """The number of sentences that were left out."""


def drawn(picture: Picture, outcome: Outcome, first: Finding | None) -> tuple[DrawnScene, ...]:
    """Return the scenes of a picture, with the operations of its case; `first` is why the case fails."""
    steps = {step.number: step for step in outcome.steps}
    scenes = []
    before: _Before | None = None
    for scene in picture.scenes:
        if scene.operation not in steps:
            continue
        panels = tuple(_panel(panel, picture, before) for panel in scene.panels)
        words = list(_words(panels)) if scene.reached else []
        if scene.operation == picture.operation and scene.reached:
            words = _first(words, first)
        scenes.append(
            DrawnScene(
                step=steps[scene.operation],
                reached=scene.reached,
                panels=panels,
                words=tuple(words[:_MOST_WORDS]),
                more=max(0, len(words) - _MOST_WORDS),
            )
        )
        before = _cells(scene, picture)
    return tuple(scenes)


def cell_name(panel: DrawnPanel, row: DrawnRow, place: int) -> str:
    """Return the name by which a difference refers to one cell of a row."""
    return row.label + _column(panel, row, [place])


def field_names(field: str) -> tuple[str, ...]:
    """Return the names of a difference's place in a picture: also "request a, blocks" for "request a: blocks"."""
    return field, field.replace(": ", ", ", 1)


def _first(words: list[str], difference: Finding | None) -> list[str]:
    """Put the first difference first. If no panel shows it (a reply, for example), add a sentence for it."""
    if difference is None or not difference.field:
        return words
    place = tuple(f"{name}{behind}" for name in field_names(difference.field) for behind in (":", " to "))
    if not any(text.startswith(place) for text in words):
        return [f"{difference.field}: yours {difference.actual}, should be {difference.expected}", *words]
    return sorted(words, key=lambda text: not text.startswith(place))


def _cells(scene: Scene, picture: Picture) -> _Before:
    rows = ((panel.title, picture.rows[place]) for panel in scene.panels for place in panel.rows)
    return {(title, row.label): row.expected if row.actual is None else row.actual for title, row in rows}


def _panel(panel: Panel, picture: Picture, before: _Before | None) -> DrawnPanel:
    rows = tuple(_row(panel, picture.rows[place], before) for place in panel.rows)
    wrong = {place for row in rows for place, cell in enumerate(row.cells) if cell.wrong and not row.one_sided}
    return DrawnPanel(
        title=panel.title,
        shape=panel.shape,
        columns=tuple((name, place in wrong) for place, name in enumerate(panel.columns)),
        legend=panel.legend,
        rows=rows,
        omitted=panel.omitted,
    )


def _row(panel: Panel, row: Row, before: _Before | None) -> DrawnRow:
    actual = row.expected if row.actual is None else row.actual
    earlier = before.get((panel.title, row.label)) if before is not None else None
    known = earlier if earlier is not None else actual
    cells = tuple(
        DrawnCell(expected=wanted, actual=yours, changed=yours != old)
        for wanted, yours, old in zip_longest(
            row.expected, actual, known[: max(len(row.expected), len(actual))], fillvalue=""
        )
    )
    return DrawnRow(
        label=row.label,
        depth=row.depth,
        cells=cells,
        missing=not actual and bool(row.expected),
        extra=bool(actual) and not row.expected,
    )


def _words(panels: Sequence[DrawnPanel]) -> Iterator[str]:
    for panel in panels:
        if panel.shape is Shape.SENTENCES:
            sentences = [cell.actual for row in panel.rows for cell in row.cells if cell.wrong and cell.actual]
            more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
            yield from (f"{panel.title}: {text}{more}" for text in sentences[:1])
            continue
        for row in panel.rows:
            yield from _words_of(panel, row)


def _words_of(panel: DrawnPanel, row: DrawnRow) -> Iterator[str]:
    """Return what is wrong in one row: the row as a whole, or each cell by its column."""
    label = row.label or panel.title
    if row.one_sided:
        yield f"{label}: " + ("missing in yours" if row.missing else "there in yours, and should not be")
        return
    for same, places in groupby(range(len(row.cells)), key=lambda place: row.cells[place]):
        if same.wrong:
            yours, right = (panel.legend.get(text, text) or "nothing" for text in (same.actual, same.expected))
            yield f"{label}{_column(panel, row, list(places))}: yours {yours}, should be {right}"


def _column(panel: DrawnPanel, row: DrawnRow, places: Sequence[int]) -> str:
    """Return the place in the row; "" when the row has one cell, or cells without names."""
    if (len(row.cells) == 1 and panel.shape is not Shape.GRID) or places[-1] >= len(panel.columns):
        return ""
    first, last = (panel.columns[place][0] for place in (places[0], places[-1]))
    joint = "" if first.startswith("[") else ", "
    return f"{joint}{first}" + (f" to {last}" if first != last else "")
