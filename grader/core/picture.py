"""Pictures in a report: the states of a failing case, expected next to actual, and charts of a whole case.

The lab defines the panels of a state (`Lab.picture`) and the charts (`Lab.charts`); the code that draws them knows only
rows of cells, signs and numbers. A chart shows what happened in a case from left to right, or how a whole is divided
into shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A row of cells. A cell is empty or starts with a sign of the chart's legend, such as "P4"."""

    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A row of numbers from 0 to `most`, one for each column; None if the number is unknown."""

    label: str
    values: tuple[int | None, ...]
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A bar whose length is a whole, divided into parts in the order of the chart's legend."""

    label: str
    parts: tuple[float, ...]
    """Numbers that are not negative; their sum is the whole."""


@dataclass(frozen=True, slots=True)
class ChartCell:
    """A cell: the positions of its column and its track, from 0."""

    column: int
    track: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow from a cell to another cell that waits for it. Both are the only cells in their columns."""

    start: ChartCell
    end: ChartCell


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart of one run of a case: tracks and levels below common columns, or bars."""

    title: str
    legend: dict[str, str]
    """The meaning of each sign of the tracks, or the name of each part of the bars by its sign."""
    columns: tuple[str, ...] = ()
    operations: tuple[int, ...] = ()
    """For each column the number of its operation, from 1, in ascending order; empty if columns are not operations."""
    tracks: tuple[Track, ...] = ()
    marks: tuple[ChartCell, ...] = ()
    """Cells that are wrong together, such as two accesses in the wrong order."""
    arrows: tuple[Arrow, ...] = ()
    levels: tuple[Level, ...] = ()
    bars: tuple[Shares, ...] = ()
    known: tuple[Shares, ...] = ()
    """Bars of published figures, to compare with."""

    @property
    def has_content(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self.tracks or self.levels or self.bars)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedChart:
    """The charts of the program's run and of the reference's run.

    Both have the same columns and labels. The reference's chart is empty if only the program's run can be drawn.
    """

    actual: Chart
    expected: Chart
    wrong: ChartCell | None = None
    """The first cell that differs."""

    @property
    def is_wrong(self) -> bool:
        """Whether the two runs differ, or the program's chart shows something that no right run has."""
        differs = self.wrong is not None or self.actual.bars != self.expected.bars
        return differs or (self.actual.has_content and not self.expected.has_content)


class Drawing(IntEnum):
    """How many of a record's failing cases are drawn, and how much of each."""

    NOTHING = 0
    FIRST = 1
    """Only the operation with which a report begins."""
    ALL = 2
    """Each cause: its states step by step, and a program that reproduces it."""


class PanelShape(StrEnum):
    """How a panel is drawn."""

    VALUES = "values"
    """A name and a value in each row."""
    GRID = "grid"
    """Rows of cells below named columns."""
    TREE = "tree"
    """Each row is a child of the nearest row before it with a smaller depth."""
    CHAIN = "chain"
    """Cells that point to their neighbours."""
    SENTENCES = "sentences"
    """Each row is a sentence that says what is wrong; no cells are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """A part of one state, as a lab describes it. `lines` maps the depth and label of a row to its cells."""

    title: str
    """Equal in all states of a case. "SCOPE: NAME" if several objects of a state have a part of this name."""
    shape: PanelShape
    lines: Mapping[tuple[int, str], tuple[str, ...]]
    columns: tuple[str, ...] = ()
    legend: Mapping[str, str] = field(default_factory=dict)
    """The meaning of cells that hold only a sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """A row of cells in three states. If a state lacks the row, its tuple of cells is empty."""

    label: str
    depth: int = 0
    expected: tuple[str, ...]
    """The cells that the judge compared with the program's cells."""
    actual: tuple[str, ...] | None = None
    """None if the cells equal `expected`."""
    before: tuple[str, ...] | None = None
    """The cells before the operation; None if the operation did not change the program's cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of the state around one operation. `rows` are positions in the picture's list."""

    title: str
    shape: PanelShape
    columns: tuple[str, ...] = ()
    legend: dict[str, str] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    """-1 means omitted rows."""
    omitted: int = 0
    """The number of omitted rows; they have no difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The states around one operation (counted from 1): before it, the program's after it, and the expected one."""

    operation: int
    reached: bool = True
    """Whether the operation returned. If not, only the expected state after it is drawn."""
    panels: tuple[Panel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The picture of a failing case. Rows that are equal in several scenes are stored once."""

    case: str
    operation: int
    """The operation that went wrong first."""
    rows: tuple[StateRow, ...] = ()
    scenes: tuple[Scene, ...] = ()
    charts: tuple[ComparedChart, ...] = ()
    program: tuple[str, ...] = ()
    """The lines of a program that reproduces the failure outside the grader."""
