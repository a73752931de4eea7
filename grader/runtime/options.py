"""What one grading does, whichever cases are run. Every value here changes records."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEFAULTS", "GradingOptions"]


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


DEFAULTS = GradingOptions()
"""A grading with Valgrind, without advice and without a count of instructions."""
