"""An operation that went wrong with no line known, about which the judge needs more information."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.difference import Difference, Judgement
from grader.runtime.comparison import Comparison

__all__ = ["Suspicion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """The operation in which a case first went wrong (both counted from 0)."""

    case: int
    operation: int
    comparison: Comparison
    kind: str
    """The kind of an instrument's finding, such as "crash"; empty where a difference shows the fault."""
    difference: Difference | None
    judgement: Judgement | None
    group: str
    """Suspicions of the same group have the same cause."""
    plain: bool
    """Whether the case only calls what is to be written, on one target, without pokes and without an odd set-up."""
