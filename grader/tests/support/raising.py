"""Optional stages that fail like any other code, so that a test sees it."""

# ruff: noqa: ARG002 - the interface has arguments that are not needed here

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from grader.core.errors import OptionalStage, OptionalStages

T = TypeVar("T")
U = TypeVar("U")


class Raising(OptionalStages):
    """Collects nothing."""

    def run(self, stage: OptionalStage, work: Callable[[], T], *, otherwise: U) -> T | U:
        """Return what `work` returns, and raise what it raises."""
        return work()
