"""Pictures of failing cases in a report: states as panels of rows and cells, expected beside actual, step by step.

The lab defines the panels (`Lab.picture`); the code that draws them knows only rows of cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from grader.core.chart import ComparedChart


class Drawing(IntEnum):
    """How many of a record's failing cases are drawn, and how much of each."""

    NOTHING = 0
    FIRST = 1
    """The operation that a report begins with."""
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
    """What is wrong, a sentence in each row: told in words, and no cells are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """A part of one state, as a lab describes it. `lines` maps the depth and label of a row to its cells."""

    title: str
    """The same in all states of a case. "SCOPE: NAME" where a state has several objects with parts of these names."""
    shape: PanelShape
    lines: Mapping[tuple[int, str], tuple[str, ...]]
    columns: tuple[str, ...] = ()
    legend: Mapping[str, str] = field(default_factory=dict)
    """The meaning of cells that hold only a sign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """A row of cells in three states. A row that a state lacks has no cells there."""

    label: str
    depth: int = 0
    expected: tuple[str, ...]
    """What the judge compared the program's row with."""
    actual: tuple[str, ...] | None = None
    """None when it equals `expected`."""
    before: tuple[str, ...] | None = None
    """The cells before the operation; None when the program's own are still the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A part of the state around one operation. `rows` are positions in the picture's list."""

    title: str
    shape: PanelShape
    columns: tuple[str, ...] = ()
    legend: dict[str, str] = field(default_factory=dict)
    rows: tuple[int, ...] = ()
    """-1 stands for omitted rows."""
    omitted: int = 0
    """The number of omitted rows; they have no difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The states around one operation (counted from 1): before it, the program's after it, and the expected one."""

    operation: int
    reached: bool = True
    """Whether the program returned from the operation. Otherwise there is only the expected state after it."""
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
