"""Stages of a grading that cannot change points: when one of them fails, the grading goes on without it.

The failure is noted in the record. A failure anywhere else is the grader's own fault, and the grading gives no score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


class OptionalStage(StrEnum):
    """A stage whose result a report can omit."""

    LOST_MEMORY = "lost-memory"  # where memory was lost; that it was lost is known without this stage
    LINES = "lines"
    EXPLANATIONS = "explanations"
    ADVICE = "advice"
    SEARCH = "search"
    PRINTS = "prints"
    SOURCE = "source"
    PICTURES = "pictures"
    WOULD_SCORE = "would-score"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailure:
    """A stage that failed, so that a report lacks what it would have found."""

    stage: OptionalStage
    error: str
    """The exception with its message, and the line of the grader that raised it."""


@dataclass(slots=True)
class OptionalStages:
    """Runs the optional stages of one grading and collects their failures."""

    failures: list[StageFailure] = field(default_factory=list)

    def run(self, stage: OptionalStage, work: Callable[[], T], *, otherwise: U) -> T | U:
        """Return what `work` returns. If it raises an exception, note the failure and return `otherwise`.

        Interrupts are not caught: they end the grading.
        """
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it cannot have changed points
            self.failures.append(StageFailure(stage=stage, error=_described(error)))
            return otherwise


def _described(error: Exception) -> str:
    """Return the exception's class and message, and the file and line that raised it, without the machine's folders."""
    import traceback  # noqa: PLC0415 - only failures need it

    description = "".join(traceback.format_exception_only(error)).strip()
    (place,) = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{description} ({Path(place.filename).name}:{place.lineno})"
