"""Figures, their targets, and how they are shown. Only arithmetic: nothing is measured here."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Figure",
    "Section",
    "Target",
    "as_rows",
    "as_table",
    "best",
    "differences",
    "exit_code",
    "ratio",
    "worst",
]


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must not exceed, or must at least reach."""

    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Is it kept? The limit itself is."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: its name, its value, how far single rounds lay apart, and the target where there is one."""

    name: str
    value: float
    low: float
    high: float
    target: Target | None = None

    @property
    def held(self) -> bool | None:
        """Is the target kept? None where there is none."""
        return None if self.target is None else self.target.holds(self.value)


@dataclass(frozen=True, slots=True)
class Section:
    """Figures that belong together, under a title."""

    title: str
    figures: tuple[Figure, ...]


def ratio(
    name: str, above: Sequence[float], below: Sequence[float], *, target: Target | None = None, minus: float = 0.0
) -> Figure:
    """The median of the quotients of each round, less `minus`; rounds in which only one was measured do not count."""
    return _middle(name, [a / b - minus for a, b in zip(above, below, strict=False)], target)


def best(
    name: str, above: Sequence[float], below: Sequence[float], *, target: Target | None = None, minus: float = 0.0
) -> Figure:
    """The quotient of the two smallest, less `minus`: other work on the machine only ever adds.

    For what differs by less than single rounds do.
    """
    rounds = [a / b - minus for a, b in zip(above, below, strict=True)]
    return Figure(
        name=f"{name} (best of {len(rounds)})",
        value=min(above) / min(below) - minus,
        low=min(rounds),
        high=max(rounds),
        target=target,
    )


def worst(name: str, values: Sequence[float], *, target: Target | None = None) -> Figure:
    """The largest value: one that is too large among many is what a median would hide."""
    return Figure(name=name, value=max(values), low=min(values), high=max(values), target=target)


def differences(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """What is left of each round's first figure without the second."""
    return [a - b for a, b in zip(above, below, strict=False)]


def exit_code(figures: Iterable[Figure]) -> int:
    """1 when a target is missed, else 0."""
    return int(any(figure.held is False for figure in figures))


def as_rows(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """For machines."""
    return [
        {
            "name": figure.name,
            "value": figure.value,
            "target": None if figure.target is None else figure.target.limit,
            "held": figure.held,
        }
        for figure in figures
    ]


def as_table(sections: Iterable[Section]) -> str:
    """For people: 100 columns, a line for each figure."""
    lines = []
    for section in sections:
        lines += ["", f"{section.title:52}{'value':>9}  {'single rounds':19}target".rstrip()]
        lines += [_line(figure) for figure in section.figures]
    return "".join(f"{line}\n" for line in lines[1:])


def _line(figure: Figure) -> str:
    spread = f"{_shown(figure.low)} .. {_shown(figure.high)}" if figure.low != figure.high else ""
    said = {None: "", True: "held", False: "MISSED"}[figure.held]
    target = "" if figure.target is None else str(figure.target)
    return f"  {figure.name:50}{_shown(figure.value):>9}  {spread:19}{target:11}{said}".rstrip()


def _shown(value: float) -> str:
    """Enough digits to see on which side of a target it lies; a whole number has no more than it has."""
    if value == int(value):
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}"


def _middle(name: str, values: Sequence[float], target: Target | None) -> Figure:
    return Figure(name=name, value=statistics.median(values), low=min(values), high=max(values), target=target)
