"""How submissions are graded. Every value here changes records."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULTS", "GradingOptions", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingOptions:
    """What one grading does, whichever cases are run."""

    seed: int | None = None
    """For the pools' magic words; None: the rubric's."""
    valgrind: bool = True
    advise: bool = False
    """Whether advice is looked for that costs no point but takes time."""
    instructions: bool = False
    """Whether the instructions of the demanded functions are counted."""
    allowed: tuple[str, ...] = ()
    """Symbols for which nothing is rejected: somebody has looked at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(GradingOptions):
    """How a class is graded: the assignment, its cases, and the options of each grading."""

    lab: str
    case: str = "*"
    public_only: bool = False
    """Without hidden cases; always so where there are none."""


DEFAULTS = GradingOptions()
"""A grading with Valgrind, without advice and without a count of instructions."""
