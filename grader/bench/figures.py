"""Figures with their targets, the rounds in which they are measured, and how they are shown.

CPU time is user + system time of this process and of all children that it waited for, as getrusage reports it. On a
machine with other load the CPU times of two candidates vary together, so their quotient stays stable.

`pyperf` is not used: it measures one piece of work after the other by wall time, each in processes of its own, and does
not count the CPU time of children, in which nearly all of a grading is spent.
"""

from __future__ import annotations

import random
import resource
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Work = Callable[[], object]
Tell = Callable[[str], None]
"""Called with a description of what is being done."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Work to measure; an expensive candidate is measured in the first `most` rounds only."""

    name: str
    work: Work
    most: int = 1_000_000


def rounds_of(candidates: Sequence[Candidate], rounds: int, tell: Tell) -> dict[str, list[float]]:
    """Return the CPU seconds of each candidate in each round; every round runs them in another order."""
    taken: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    order = random.Random(0)
    for number in range(rounds):
        due = [candidate for candidate in candidates if number < candidate.most]
        for candidate in order.sample(due, len(due)):
            tell(f"round {number + 1} of {rounds}: {candidate.name}")
            taken[candidate.name].append(cpu_of(candidate.work))
    return taken


def cpu_of(work: Work) -> float:
    """Run `work`; return the CPU seconds of this process and of the children that it waited for."""
    before = _cpu()
    work()
    return _cpu() - before


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@dataclass(frozen=True, slots=True)
class Target:
    """The limit that a figure must not exceed, or must at least reach."""

    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """Whether the value meets the target; the limit itself does."""
        return value >= self.limit if self.at_least else value <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure: its name, its value, the range of single rounds, and the target if it has one."""

    name: str
    value: float
    low: float
    high: float
    target: Target | None = None

    @property
    def held(self) -> bool | None:
        """Whether the target is met; None without a target."""
        return None if self.target is None else self.target.holds(self.value)


@dataclass(frozen=True, slots=True)
class FigureGroup:
    """Figures that belong together, under a title."""

    title: str
    figures: tuple[Figure, ...]


def ratio(name: str, above: Sequence[float], below: Sequence[float], *, target: Target | None = None) -> Figure:
    """The median of each round's quotient; rounds in which only one was measured do not count."""
    values = [a / b for a, b in zip(above, below, strict=False)]
    return Figure(name=name, value=statistics.median(values), low=min(values), high=max(values), target=target)


def median(name: str, values: Sequence[float]) -> Figure:
    """The median of values that are no quotients; it has no target, because it depends on the machine."""
    return Figure(name=name, value=statistics.median(values), low=min(values), high=max(values))


def best(
    name: str, above: Sequence[float], below: Sequence[float], *, target: Target | None = None, minus: float = 0.0
) -> Figure:
    """The quotient of the two smallest values, minus `minus`, because other load on the machine only adds time.

    Use it for candidates that differ by less than single rounds do.
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
    """The largest value; a median would hide a single value that is too large."""
    return Figure(name=name, value=max(values), low=min(values), high=max(values), target=target)


def exit_code(figures: Iterable[Figure]) -> int:
    """1 when a target is missed, else 0."""
    return int(any(figure.held is False for figure in figures))


def as_rows(figures: Iterable[Figure]) -> list[dict[str, Any]]:
    """Return the figures as rows for machine-readable output."""
    return [
        {
            "name": figure.name,
            "value": figure.value,
            "target": None if figure.target is None else figure.target.limit,
            "held": figure.held,
        }
        for figure in figures
    ]


def as_table(groups: Iterable[FigureGroup]) -> str:
    """Return the figures as text for people: 100 columns, one line per figure."""
    lines = []
    for group in groups:
        lines += ["", f"{group.title:52}{'value':>9}  {'single rounds':19}target".rstrip()]
        lines += [_line(figure) for figure in group.figures]
    return "".join(f"{line}\n" for line in lines[1:])


def _line(figure: Figure) -> str:
    spread = f"{_shown(figure.low)} .. {_shown(figure.high)}" if figure.low != figure.high else ""
    status = {None: "", True: "held", False: "MISSED"}[figure.held]
    target = "" if figure.target is None else str(figure.target)
    return f"  {figure.name:50}{_shown(figure.value):>9}  {spread:19}{target:11}{status}".rstrip()


def _shown(value: float) -> str:
    """Format a value with enough digits to compare it with a target; a whole number has no decimals."""
    if value == int(value):
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}"
