"""What a harness reports of one of the student's allocations: a wrong release, damage, or a loss."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

ALLOCATED = "allocated"
"""Tag of a difference: a call that must fail allocated memory."""

RELEASED_WRONGLY = "released-wrongly"
"""Tag of a difference: memory was released that may not be."""

DAMAGED = "damaged"
"""Tag of a difference: something was written outside of allocations."""

UNKNOWN, HELD = -1, -2
"""Values in the place of an operation number."""


class Event(IntEnum):
    """What happened to an allocation."""

    BAD_FREE = 1
    BROKEN = 2
    LIVE = 3
    TOO_SMALL = 4
    FAILED = 5
    SCRATCH = 6
    UNFILLED = 7
    USED_AFTER_FREE = 8
    """Only in a build that reports lines."""


@dataclass(frozen=True, slots=True)
class Misuse:
    """A way to misuse memory, in the runtime's words."""

    kind: str
    """The word for it in findings and clues."""
    words: str
    """What the call does, where {size}, {number}, {made} and {freed} stand for what is known of the allocation."""
    explains_state: bool = False
    """Whether it probably caused a wrong state of the same call."""
    at_allocation: bool = False
    """Whether only the line that made the allocation is known, not the line that misused it."""


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """One allocation and what is wrong with it. Operations count from 0."""

    event: Event
    operation: int
    allocated_by: int
    size: int
    allocated_at: int
    caller: int
    freed_at: int = 0
    freed_by: int = UNKNOWN
    lost_by: int = UNKNOWN
    """The operation since which nothing points to it, where that was traced; `HELD` when something still does."""
    number: int = 0
    """In bytes: how far inside the block a wrong release points, or how large an allocation that is too small should
    be."""
    misuse: Misuse | None = None
    """For `BAD_FREE`, `BROKEN` and `TOO_SMALL`: what was done."""
