"""What the judge wants to know more about: an operation that went wrong with no line known."""

from __future__ import annotations

from dataclasses import dataclass

from grader.runtime.comparison import Comparison
from reference.model import Difference, Judgement

__all__ = ["Suspicion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """One operation of one case (both counted from 0) in which the case first went wrong."""

    case: int
    operation: int
    comparison: Comparison
    kind: str
    """Of an instrument's finding, such as "crash"; empty where a difference shows it."""
    difference: Difference | None
    judgement: Judgement | None
    group: str
    """Suspicions of one group have one cause."""
    plain: bool
    """Is it a case that only calls what is to be written, on one target, without pokes and an odd set-up?"""
