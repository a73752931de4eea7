"""Charts of a whole case: what happened in it from left to right, or how a whole is divided into shares.

The lab makes them (`Lab.charts`) of the states after each operation; the code that draws them knows only signs and
numbers. States have pictures of their own (`grader.core.picture`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """A row of cells. Each cell is empty, or a sign of the chart's legend with perhaps more behind it, such as "P4"."""

    label: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A row of numbers from 0 to `most`, one for each column; None where nothing is known."""

    label: str
    values: tuple[int | None, ...]
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A bar whose length is a whole, divided into parts in the order of the chart's legend."""

    label: str
    parts: tuple[float, ...]
    """Not negative. What they add up to is the whole."""


@dataclass(frozen=True, slots=True)
class ChartCell:
    """A cell: the positions of its column and its track, from 0."""

    column: int
    track: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """From the cell that something waits for to the cell that waits, each the only one in its column."""

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
    """For each column the number of its operation, from 1, in ascending order; empty: columns are something else."""
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
    """The chart of the program's run, and that of the reference's: with the same columns and labels, or empty where
    only the program's own run can be drawn.
    """

    actual: Chart
    expected: Chart
    wrong: ChartCell | None = None
    """The first cell that differs."""

    @property
    def is_wrong(self) -> bool:
        """Whether the two runs differ in it, or the program's own has something that no right run has."""
        differs = self.wrong is not None or self.actual.bars != self.expected.bars
        return differs or (self.actual.has_content and not self.expected.has_content)
