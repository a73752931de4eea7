"""A step whose record came as a delta. Records are decoded one after the other: a delta of a few bytes can make one of
megabytes, and a program may send thousands of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from grader.runtime.native.delta import applied
from grader.runtime.observation import PlayedStep

__all__ = ["DeltaStep"]


@dataclass(slots=True, eq=False, kw_only=True)
class DeltaStep(PlayedStep):
    """What one operation did to the record of the step `before`; `length` is what `delta.length_after` said."""

    delta: bytes
    before: DeltaStep | None = field(repr=False)
    known: bytes | None = field(default=None, repr=False)
    """The record, cached from its first use until `forget`."""

    @property
    def record(self) -> bytes:
        """The record, made of the last known one before it."""
        steps: list[DeltaStep] = []
        step: DeltaStep | None = self
        while step is not None and step.known is None:
            steps.append(step)
            step = step.before
        record = b"" if step is None or step.known is None else step.known
        for step in reversed(steps):
            record = applied(step.delta, record)
        self.known = record
        return record

    def forget(self) -> None:
        """Drop the cached record."""
        self.known = None
