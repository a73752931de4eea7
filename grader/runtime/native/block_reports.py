"""Decode the harness's reports on allocations: BLOCK frames (harness/frames.c), with the words for each misuse."""

from __future__ import annotations

import struct

from grader.runtime.native.heap_events import BlockEvent, Event, Misuse

_BODY = struct.Struct("<5i4x4Qq")

_FOREIGN = Misuse("free-foreign", "frees an address that malloc never returned", explains_state=True)
_OVERRUN = Misuse(
    "overrun",
    "writes past the end of an allocation of {size} bytes{made}",
    explains_state=True,
    at_allocation=True,
)
_BAD_FREES = {
    1: Misuse("double-free", "frees {size} bytes{made} that were already freed{freed}", explains_state=True),
    2: Misuse(
        "free-inside",
        "frees an address inside an allocation of {size} bytes{made}, {number} bytes behind its start",
        explains_state=True,
    ),
    3: _FOREIGN,
    7: Misuse("free-pool", "frees the pool, which the caller owns", explains_state=True),
    8: Misuse("free-static", "frees a global or static variable"),
    9: Misuse("free-stack", "frees a local variable"),
}
_BROKEN = {
    4: Misuse(
        "underrun",
        "writes before the start of an allocation of {size} bytes{made}",
        explains_state=True,
        at_allocation=True,
    ),
    5: _OVERRUN,
    6: Misuse("write-after-free", "writes into {size} bytes{made} that were already freed{freed}"),
}
_TOO_SMALL = Misuse(
    "too-small",
    "an allocation of {size} bytes{made} is too small for what it holds: {number} bytes are needed",
    explains_state=True,
)
"""By the values of `enum detail` in harness/inside.h."""


def block_event(body: bytes, operation: int) -> BlockEvent:
    """Decode the body of a BLOCK frame.

    Raises `struct.error` or `ValueError` for a body that the harness did not send.
    """
    event, detail, made_by, freed_by, lost_by, size, made_at, freed_at, caller, number = _BODY.unpack(body)
    return BlockEvent(
        event=Event(event),
        operation=operation,
        allocated_by=made_by,
        size=size,
        allocated_at=made_at,
        caller=caller,
        freed_at=freed_at,
        freed_by=freed_by,
        lost_by=lost_by,
        number=number,
        misuse=_misuse(Event(event), detail),
    )


def _misuse(event: Event, detail: int) -> Misuse | None:
    if event is Event.BAD_FREE:
        return _BAD_FREES.get(detail, _FOREIGN)
    if event is Event.BROKEN:
        return _BROKEN.get(detail, _OVERRUN)
    return _TOO_SMALL if event is Event.TOO_SMALL else None
