"""A failing case as a report draws it: states as panels of rows and cells, expected beside actual, step by step.

What the panels are is the lab's business (`Lab.picture`); who draws them knows rows of cells only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

__all__ = ["Drawing", "Panel", "Part", "Picture", "Row", "Scene", "Shape"]


class Drawing(IntEnum):
    """How much of a record's failing cases is drawn."""

    NOTHING = 0
    FIRST = 1
    """The operation with which a report begins."""
    ALL = 2
    """Each cause: its states step by step, and a program that shows it."""


class Shape(StrEnum):
    """How a panel is drawn."""

    VALUES = "values"
    """A name and a value in each row."""
    GRID = "grid"
    """Rows of cells below named columns."""
    TREE = "tree"
    """Rows that hang below the nearest row before them of less depth."""
    CHAIN = "chain"
    """Cells that point to their neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of one state, as a lab describes it: cells by the labels of their rows, which say the depth too."""

    title: str
    shape: Shape
    lines: Mapping[tuple[int, str], tuple[str, ...]]
    columns: tuple[str, ...] = ()
    legend: Mapping[str, str] = field(default_factory=dict)
    """What cells mean that are only signs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Cells as they should be; `actual` is None where they are so. A row that one side lacks has no cells there."""

    label: str
    depth: int = 0
    expected: tuple[str, ...]
    actual: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of the state after one operation. `rows` are positions in the picture's list."""

    title: str
    shape: Shape
    columns: tuple[str, ...] = ()
    legend: dict[str, str] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    omitted: int = 0
    """Rows with nothing wrong that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The state after one operation (counted from 1), judged from the state that the program was in before it."""

    operation: int
    reached: bool = True
    """Did the program come back from it? Else there is the expected state only."""
    panels: tuple[Panel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A failing case, drawn. Rows that are equal in several scenes are kept once."""

    case: str
    operation: int
    """The one that went wrong first."""
    rows: tuple[Row, ...] = ()
    scenes: tuple[Scene, ...] = ()
    program: tuple[str, ...] = ()
    """The lines of a program that shows it outside the grader."""
