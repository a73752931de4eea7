"""What one grading does, whichever cases are run. Every value here changes records."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingOptions:
    """The options of one grading, whichever cases are run."""

    seed: int | None = None
    """The seed of the pools' magic words; None: the rubric's seed."""
    memory_checker: bool = True
    """Whether a tool looks for wrong uses of memory that the grader itself cannot see, where the runtime has one."""
    advise: bool = False
    """Whether to look for advice, which costs no points but takes time."""
    allowed: tuple[str, ...] = ()
    """Symbols for which nothing is rejected, because a person has looked at them."""


DEFAULTS = GradingOptions()
"""A grading with the memory checker and without advice."""
