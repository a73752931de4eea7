"""What the harness reports of one of the student's allocations: a bad free, damage, or a loss."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["HELD", "UNKNOWN", "BlockEvent", "Event"]

UNKNOWN, HELD = -1, -2
"""Values in the place of an operation number."""

_BODY = struct.Struct("<5i4x4Qq")


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
class BlockEvent:
    """One allocation and what is wrong with it. Operations count from 0."""

    event: Event
    detail: int
    """A value of `enum detail` in inside.h."""
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
    """In bytes: how far inside the block a bad free points, or how large an allocation that is too small should be."""

    @classmethod
    def read(cls, body: bytes, operation: int) -> BlockEvent:
        """Decode the body of a BLOCK frame.

        Raises `struct.error` or `ValueError` for a body that the harness did not send.
        """
        event, detail, made_by, freed_by, lost_by, size, made_at, freed_at, caller, number = _BODY.unpack(body)
        return cls(
            event=Event(event),
            detail=detail,
            operation=operation,
            allocated_by=made_by,
            size=size,
            allocated_at=made_at,
            caller=caller,
            freed_at=freed_at,
            freed_by=freed_by,
            lost_by=lost_by,
            number=number,
        )
