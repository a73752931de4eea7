"""A picture of a record as cells marked wrong or changed, and sentences on wrong rows, for web page and terminals.

`drawn` returns every scene of a picture. `narrowed` returns what a report shows first of one scene: only the rows that
the operation changed or had to change. Equal rows and columns are merged for display; the record has each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, zip_longest

from grader.core.picture import PanelShape, Picture, Scene, StateRow
from grader.core.verdict import Finding, Outcome, StepShown
from grader.report.page import Page, Span, Style, dim, pad, strong, width_of

_MOST_WORDS = 6
_MANY_ROWS = 24
"""In a grid with more rows than this, equal neighbours are merged."""
_FEWEST_ALIKE = 3
"""The fewest equal neighbours that are drawn as one row."""

_MOST_NARROWED, _MOST_CELLS = 5, 12
"""The most rows of one panel of a narrowed scene, and the most cells in such a row if its cells have no names."""
_LONG = r"-?\d{7,}"
"""Matches a number that is so long that it would leave no room for other cells."""
_LONG_SHOWN = 5


class CellMark(StrEnum):
    """How a cell is marked. `FIRST` is where the case went wrong; `RIGHT` is the expected value of a wrong cell."""

    NONE = ""
    FIRST = "first"
    WRONG = "wrong"
    RIGHT = "right"
    CHANGED = "changed"


class Side(StrEnum):
    """One of the three states around an operation."""

    BEFORE = "before"
    YOURS = "yours"
    EXPECTED = "expected"


_MOST_COLUMNS = 80
_INDENT = 4
_GAP = "   "
"""The space between two states in a terminal."""
_MOST_WHOLE = 24
"""The maximum number of cells of a row of a whole state if its cells have no names."""
_STYLES = {
    CellMark.NONE: Style.PLAIN,
    CellMark.FIRST: Style.BAD,
    CellMark.WRONG: Style.BAD,
    CellMark.RIGHT: Style.GOOD,
    CellMark.CHANGED: Style.STRONG,
}

_PRIORITY = {CellMark.FIRST: 2, CellMark.WRONG: 1, CellMark.CHANGED: 0, CellMark.NONE: 0}
"""If there are too many rows, those with the highest number stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCell:
    """One cell in the three states. `mark` is the mark of the cell in the program's own state."""

    before: str
    yours: str
    expected: str
    mark: CellMark = CellMark.NONE

    @property
    def wrong(self) -> bool:
        """Whether the cell is wrong."""
        return self.mark in (CellMark.FIRST, CellMark.WRONG)

    @property
    def changed(self) -> bool:
        """Whether the program's operation changed the cell."""
        return self.yours != self.before

    def on(self, side: Side) -> tuple[str, CellMark]:
        """Return the text and the mark of the cell in one state."""
        had_to = CellMark.CHANGED if self.expected != self.before else CellMark.NONE
        return {
            Side.BEFORE: (self.before, CellMark.NONE),
            Side.YOURS: (self.yours, self.mark),
            Side.EXPECTED: (self.expected, CellMark.RIGHT if self.wrong else had_to),
        }[side]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRow:
    """A row of a panel: `added` by the program's operation, `missing` although expected, `extra` if not expected."""

    label: str
    depth: int
    cells: tuple[DrawnCell, ...]
    added: bool = False
    missing: bool = False
    extra: bool = False

    @property
    def wrong(self) -> bool:
        """Whether any cell of the row is wrong."""
        return any(cell.wrong for cell in self.cells)

    @property
    def speaks(self) -> bool:
        """Whether any cell of the row is wrong, changed, or had to change."""
        return any(cell.mark is not CellMark.NONE or cell.expected != cell.before for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPanel:
    """A part of the three states around an operation, with its rows."""

    title: str
    shape: PanelShape
    columns: tuple[str, ...]
    legend: dict[str, str]
    """The meaning of cells that hold only a sign."""
    rows: tuple[DrawnRow, ...]
    omitted: int = 0
    """The number of rows with no difference that the record omits."""

    @property
    def scope(self) -> str:
        """If the state has several objects: the object to which the panel belongs, such as "engine @2"; else empty."""
        return self.title.rpartition(": ")[0]

    @property
    def wrong(self) -> bool:
        """Whether any row of the panel is wrong."""
        return any(row.wrong for row in self.rows)

    @property
    def wrong_columns(self) -> set[int]:
        """The positions of columns with a wrong cell in a row that is not wrong as a whole."""
        rows = (row for row in self.rows if not (row.missing or row.extra))
        return {place for row in rows for place, cell in enumerate(row.cells) if cell.wrong}

    def cells(self, row: DrawnRow, side: Side) -> list[tuple[str, CellMark]]:
        """Return the cells of a row in one state. If cells have no names, empty cells at the end are dropped."""
        shown = [cell.on(side) for cell in row.cells]
        named = self.shape in (PanelShape.GRID, PanelShape.TREE)
        while shown and not named and not shown[-1][0] and shown[-1][1] in (CellMark.NONE, CellMark.CHANGED):
            shown.pop()
        return shown


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnScene:
    """The states around one operation."""

    step: StepShown
    reached: bool
    panels: tuple[DrawnPanel, ...]
    words: tuple[str, ...]
    """What is wrong, one sentence each, at most `_MOST_WORDS`."""
    more: int
    """The number of sentences that were left out."""

    @property
    def sides(self) -> list[Side]:
        """The states that exist. The first operation has no `BEFORE`, and a call that did not return has no `YOURS`."""
        before = [Side.BEFORE] if self.step.number > 1 else []
        return [*before, *([Side.YOURS] if self.reached else []), Side.EXPECTED]

    @property
    def is_wrong(self) -> bool:
        """Whether a cell is wrong."""
        return any(panel.wrong for panel in self.panels)

    @property
    def legend(self) -> dict[str, str]:
        """The meaning of cells that hold only a sign."""
        return {sign: meaning for panel in self.panels for sign, meaning in panel.legend.items()}


def drawn(picture: Picture, outcome: Outcome, first: Finding | None) -> tuple[DrawnScene, ...]:
    """Return the scenes of a picture, with the operations of its case; `first` is why the case fails."""
    steps = {step.number: step for step in outcome.steps}
    scenes = []
    for scene in (scene for scene in picture.scenes if scene.operation in steps):
        panels = drawn_panels(scene, picture.rows)
        words = list(_words(panels)) if scene.reached else []
        if scene.operation == picture.operation and scene.reached:
            words = _first(words, first)
        shown, more = tuple(words[:_MOST_WORDS]), max(0, len(words) - _MOST_WORDS)
        step = steps[scene.operation]
        scenes.append(DrawnScene(step=step, reached=scene.reached, panels=panels, words=shown, more=more))
    return tuple(scenes)


def drawn_panels(scene: Scene, rows: Sequence[StateRow], *, many: int = _MANY_ROWS) -> tuple[DrawnPanel, ...]:
    """Return the panels of a scene. Equal rows are merged in a grid of over `many` rows."""
    panels = []
    for panel in scene.panels:
        listed = [rows[place] if place >= 0 else None for place in panel.rows]
        merges = panel.shape is PanelShape.GRID and len(listed) + panel.omitted > many
        shown = _merged_rows(listed) if merges else filter(None, listed)
        panels.append(
            DrawnPanel(
                title=panel.title,
                shape=panel.shape,
                columns=panel.columns,
                legend=panel.legend,
                rows=tuple(_row(row, named=bool(panel.columns)) for row in shown),
                omitted=panel.omitted,
            )
        )
    return tuple(panels)


def _merged_rows(rows: Sequence[StateRow | None]) -> Iterator[StateRow]:
    """Merge at least `_FEWEST_ALIKE` neighbouring rows that differ only in their labels into one row."""
    for alike, same in groupby(rows, key=lambda row: row and replace(row, label="")):
        run = [row for row in same if row is not None]
        if alike is None or len(run) < _FEWEST_ALIKE:
            yield from run
        else:
            yield replace(run[0], label=f"{run[0].label} to {run[-1].label}")


def _row(row: StateRow, *, named: bool) -> DrawnRow:
    """Return a row with its cells. If cells have no names, it also has the cells that the operation removed."""
    yours = row.expected if row.actual is None else row.actual
    before = yours if row.before is None else row.before
    if named:
        before = before[: max(len(yours), len(row.expected))]
    cells = []
    for was, own, right in zip_longest(before, yours, row.expected, fillvalue=""):
        mark = CellMark.WRONG if own != right else CellMark.CHANGED if own != was else CellMark.NONE
        cells.append(DrawnCell(before=was, yours=own, expected=right, mark=mark))
    return DrawnRow(
        label=row.label,
        depth=row.depth,
        cells=tuple(cells),
        added=bool(yours) and not before,
        missing=not yours and bool(row.expected),
        extra=bool(yours) and not row.expected,
    )


def _first(words: list[str], difference: Finding | None) -> list[str]:
    """Put the words of the first difference first. If no panel shows it (as for a reply), add a sentence about it."""
    place = tuple(f"{name}{end}" for name in _names(difference) for end in (":", " to "))
    named = [text for text in words if text.startswith(place)]
    # If there are several objects, a difference in the first object does not name the object.
    named = named or [text for text in words if text.partition(": ")[2].startswith(place)][:1]
    if difference is not None and difference.field and not named:
        return [f"{difference.field}: yours {difference.actual}, should be {difference.expected}", *words]
    return sorted(words, key=lambda text: text not in named)


def _names(difference: Finding | None) -> tuple[str, ...]:
    """Return the names of a difference's field in a picture: "request a: blocks" may also be "request a, blocks"."""
    if difference is None or not difference.field:
        return ()
    return difference.field, difference.field.replace(": ", ", ", 1)


def _words(panels: Sequence[DrawnPanel]) -> Iterator[str]:
    for panel in panels:
        if panel.shape is PanelShape.SENTENCES:
            sentences = [cell.yours for row in panel.rows for cell in row.cells if cell.wrong and cell.yours]
            more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
            yield from (f"{panel.title}: {text}{more}" for text in sentences[:1])
            continue
        for row in panel.rows:
            yield from _words_of(panel, row)


def _words_of(panel: DrawnPanel, row: DrawnRow) -> Iterator[str]:
    """Yield what is wrong in one row: the row as a whole, or each cell by its column."""
    label = f"{panel.scope}: {row.label}" if panel.scope and row.label else row.label or panel.title
    if row.missing or row.extra:
        yield f"{label}: " + ("missing in yours" if row.missing else "there in yours, and should not be")
        return
    texts = [(cell.wrong, cell.yours, cell.expected) for cell in row.cells]
    for (is_wrong, *both), places in groupby(range(len(texts)), key=lambda place: texts[place]):
        if is_wrong:
            yours, right = (panel.legend.get(text, text) or "nothing" for text in both)
            yield f"{label}{_column(panel, row, list(places))}: yours {yours}, should be {right}"


def _column(panel: DrawnPanel, row: DrawnRow, places: Sequence[int]) -> str:
    """Return the names of the columns at these places of a row; "" if the row has one cell, or cells without names."""
    if (len(row.cells) == 1 and panel.shape is not PanelShape.GRID) or places[-1] >= len(panel.columns):
        return ""
    first, last = (panel.columns[place] for place in (places[0], places[-1]))
    joint = "" if first.startswith("[") else ", "
    return f"{joint}{first}" + (f" to {last}" if first != last else "")


def narrowed(scene: DrawnScene, first: Finding | None) -> DrawnScene:
    """Return the rows of a scene that the operation changed or had to change. Panels without such rows are left out.

    One cell is marked as the first: the wrong cell that the difference `first` names, else the first wrong cell. If
    there are several objects (`DrawnPanel.scope`), the values of an unchanged object are shown.
    """
    panels = []
    speaking = {panel.scope for panel in scene.panels if any(row.speaks for row in panel.rows)}
    for panel in _with_first(scene.panels, _names(first)):
        still = bool(speaking) and panel.scope not in speaking and panel.shape is PanelShape.VALUES
        telling = [row for row in panel.rows if still or row.speaks]
        rows = sorted(telling, key=lambda row: max(_PRIORITY[cell.mark] for cell in row.cells), reverse=True)
        rows = rows[:_MOST_NARROWED]
        if panel.shape is not PanelShape.SENTENCES and rows:
            shown = merged_columns(replace(panel, rows=tuple(row for row in telling if row in rows)))
            panels.append(replace(shown, rows=tuple(_short(row, named=bool(shown.columns)) for row in shown.rows)))
    return replace(scene, panels=tuple(panels))


def _with_first(panels: Sequence[DrawnPanel], names: Sequence[str]) -> Iterator[DrawnPanel]:
    wrong = [
        (_likeness(panel, row, place, names), row, place)
        for panel in panels
        if panel.shape is not PanelShape.SENTENCES
        for row in panel.rows
        for place, cell in enumerate(row.cells)
        if cell.wrong
    ]
    _, first, at = max(wrong, key=lambda item: item[0], default=((False, 0), None, 0))
    for panel in panels:
        yield replace(panel, rows=tuple(_with_mark(row, at) if row is first else row for row in panel.rows))


def _likeness(panel: DrawnPanel, row: DrawnRow, place: int, names: Sequence[str]) -> tuple[bool, int]:
    """Return whether `names` include the cell, and the length of the longest label of its row that begins a name."""
    rows = [f"{panel.scope}: {row.label}", f"{panel.scope}: "] if panel.scope else []
    rows = [label for label in (*rows, row.label) if label]
    column = _column(panel, row, [place])
    begins = [len(label) for label in rows for name in names if name.startswith(label)]
    return any(label + column in names for label in rows), max(begins, default=0)


def _with_mark(row: DrawnRow, at: int) -> DrawnRow:
    cells = (replace(cell, mark=CellMark.FIRST) if place == at else cell for place, cell in enumerate(row.cells))
    return replace(row, cells=tuple(cells))


def merged_columns(panel: DrawnPanel, *, numbered_only: bool = False) -> DrawnPanel:
    """Return the panel with equal neighbouring columns merged, and with labels that omit the name of the parent row.

    With `numbered_only`, only columns whose names differ only in numbers are merged.
    """
    names = [name.rpartition(" ")[2] for name in panel.columns]
    rows = tuple(_labelled(panel.rows))
    wide = [row for row in rows if len(row.cells) == len(names) > 1]
    if not wide:
        return replace(panel, columns=(), rows=rows)
    alike = [
        (re.sub(r"\d+", "", name) if numbered_only else "", [row.cells[place] for row in wide])
        for place, name in enumerate(names)
    ]
    runs = [list(run) for _, run in groupby(range(len(names)), key=lambda place: alike[place])]
    merged = {id(row): replace(row, cells=tuple(row.cells[run[0]] for run in runs)) for row in wide}
    columns = tuple(names[run[0]] if len(run) == 1 else f"{names[run[0]]}–{names[run[-1]]}" for run in runs)
    return replace(panel, columns=columns, rows=tuple(merged.get(id(row), row) for row in rows))


def _labelled(rows: Sequence[DrawnRow]) -> Iterator[DrawnRow]:
    """Yield the rows. The label of a row below its parent's row omits the parent's name."""
    parent = ""
    for row in rows:
        head, colon, tail = row.label.rpartition(": ")
        yield replace(row, label=f"└ {tail}") if colon and head == parent else row
        if not colon:
            parent = row.label


def _short(row: DrawnRow, *, named: bool) -> DrawnRow:
    """Shorten long numbers, see `_short_cell`. If cells are not `named`, keep only the first `_MOST_CELLS` cells."""
    return replace(row, cells=tuple(map(_short_cell, row.cells if named else row.cells[:_MOST_CELLS])))


def _short_cell(cell: DrawnCell) -> DrawnCell:
    """Shorten long numbers, except the program's value in the first wrong cell and the right value of a wrong cell."""
    yours = cell.yours if cell.mark is CellMark.FIRST else _short_number(cell.yours)
    expected = cell.expected if cell.wrong else _short_number(cell.expected)
    return replace(cell, before=_short_number(cell.before), yours=yours, expected=expected)


def _short_number(text: str) -> str:
    return f"{text[:_LONG_SHOWN]}…" if re.fullmatch(_LONG, text) else text


def show_states(page: Page, scene: DrawnScene | None) -> None:
    """Write the states around the operation with which the report begins, if a `scene` is given and has a wrong cell.

    A row of the table has one label and its cells in each state. A table that is too wide is tried without the state
    before the operation, then with wrong rows only, then with both cuts. If it is still too wide, nothing is written.
    """
    if scene is None or not scene.is_wrong:
        return
    after = [side for side in scene.sides if side is not Side.BEFORE]
    wrong = [replace(part, rows=tuple(row for row in part.rows if row.wrong)) for part in scene.panels if part.wrong]
    for sides, panels in ((scene.sides, scene.panels), (after, scene.panels), (scene.sides, wrong), (after, wrong)):
        table = _Table(panels, sides)
        if table.width <= min(page.width, _MOST_COLUMNS):
            page.labelled("State", "before and after the operation" if Side.BEFORE in sides else "after the operation")
            table.write(page)
            _legend(page, "> <: what is wrong first", panels, sides)
            page.write(dim("expected: your state with the wrong cells corrected"), indent=_INDENT)
            return


def show_state(page: Page, panels: Sequence[DrawnPanel]) -> None:
    """Write the whole state after an operation, each panel below its title; what the operation changed is strong."""
    merged = [merged_columns(_folded(panel), numbered_only=True) for panel in panels]
    _Table(merged, [Side.EXPECTED], titled=True).write(page)
    _legend(page, "", merged, [Side.EXPECTED])


def _folded(panel: DrawnPanel) -> DrawnPanel:
    """Return a panel in which rows with very many cells without names lack their middle."""
    gap = DrawnCell(before="...", yours="...", expected="...")
    long = [] if panel.columns else [row for row in panel.rows if len(row.cells) > _MOST_WHOLE]
    folded = {id(row): replace(row, cells=(*row.cells[: _MOST_WHOLE - 4], gap, *row.cells[-3:])) for row in long}
    return replace(panel, rows=tuple(folded.get(id(row), row) for row in panel.rows))


class _Table:
    """The panels of some states side by side, with the widths of the columns.

    If `titled`, every panel has its title. Otherwise only the first panel of each object has one: the object's name.
    """

    def __init__(self, panels: Sequence[DrawnPanel], sides: Sequence[Side], *, titled: bool = False) -> None:
        self.panels, self.sides, self.titled = panels, sides, titled
        scopes = [panel.scope for panel in panels]
        names = [scope if scope != last else "" for last, scope in zip(["", *scopes], scopes, strict=False)]
        self.titles = [panel.title for panel in panels] if titled else names
        labels = [max((width_of(row.label or panel.title) for row in panel.rows), default=0) for panel in panels]
        widest = max([0, *labels, *map(width_of, names if not titled else ())])
        self.labels = list(map(max, labels, map(width_of, self.titles))) if titled else [widest] * len(panels)
        self.columns = [_widths(panel, sides) for panel in panels]
        inner = max((sum(widths) + len(widths) - 1 for widths in self.columns), default=0)
        self.side = max(inner, *map(len, sides))
        self.width = _INDENT + widest + len(sides) * (len(_GAP) + self.side)

    def write(self, page: Page) -> None:
        """Write the table. Names of states (if several) are above the table, names of columns above their panel."""
        if len(self.sides) > 1:
            names = (strong(_GAP + pad(side, self.side)) for side in self.sides)
            page.crop(dim(" " * self.labels[0]), *names, indent=_INDENT)
        for panel, label, widths, name in zip(self.panels, self.labels, self.columns, self.titles, strict=True):
            title = name if not self.titled or any(row.label for row in panel.rows) else ""
            if panel.columns or title:
                above = " ".join(f"{name:>{wide}}" for name, wide in zip(panel.columns, widths, strict=False))
                columns = [dim(_GAP + pad(above, self.side))] * len(self.sides)
                self._line(page, label, [dim(pad(title, label)), *columns])
            for row in panel.rows:  # a chain may have one row, and its title is the label
                parts = [Span(pad(row.label or panel.title, label))]
                for side in self.sides:
                    parts += [Span(_GAP), *self._cells(panel.cells(row, side), widths)]
                self._line(page, label, parts)
            if self.titled and panel.omitted:
                page.write(dim(f"and {panel.omitted} rows more"), indent=_INDENT)

    def _line(self, page: Page, label: int, parts: list[Span]) -> None:
        """Write a line. In a table of one state, a line that is too long continues below its cells."""
        if len(self.sides) > 1:
            page.crop(*parts, indent=_INDENT)
        else:
            page.write(*parts, indent=_INDENT, hang=_INDENT + label + len(_GAP))

    def _cells(self, row: Sequence[tuple[str, CellMark]], widths: Sequence[int]) -> Iterator[Span]:
        """Yield the cells of one row in one state, filled up to the width of a state."""
        for place, ((text, mark), wide) in enumerate(zip(row, widths, strict=False)):
            shown = _marked(text, mark)
            yield Span(" " * (wide - width_of(shown) + (place > 0)) + shown, _STYLES[mark])
        yield Span(" " * (self.side - sum(widths[: len(row)]) - max(0, len(row) - 1)))


def _widths(panel: DrawnPanel, sides: Sequence[Side]) -> list[int]:
    """Return the width of each column of a panel: that of its name or of its widest cell, in any state."""
    rows = [panel.cells(row, side) for row in panel.rows for side in sides]
    shown = [[width_of(_marked(text, mark)) for text, mark in row] for row in rows]
    names = [len(name) for name in panel.columns]
    return [max(column) for column in zip_longest(names, *shown, fillvalue=0)]


def _marked(text: str, mark: CellMark) -> str:
    return f">{text}<" if mark is CellMark.FIRST else text


def _legend(page: Page, begin: str, panels: Sequence[DrawnPanel], sides: Sequence[Side]) -> None:
    shown = {text for panel in panels for row in panel.rows for side in sides for text, _ in panel.cells(row, side)}
    signs = {sign: text for panel in panels for sign, text in panel.legend.items() if sign in shown}
    meanings = [*filter(None, [begin]), *(f"{sign}: {meaning}" for sign, meaning in signs.items())]
    if meanings:
        page.write(dim("; ".join(meanings)), indent=_INDENT)
