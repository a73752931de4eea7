"""The frames in what a program reports; their layout is that of harness/frames.c.

Student code can find the token and send frames of its own, so nothing here costs more than once through the stream,
and a stream has no more frames than a program of ours would send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Frame", "Frames", "Kind"]

_FRAME = struct.Struct("<QIIiiIIIIII")

_FRAMES, _FRAMES_EACH, _FRAMES_OF_A_CASE = 20_000, 10, 1000
"""A program may report so many frames, so many more for each operation, and for each case, for what it does not free:
ledger.c tells of no more. With 276 cases, which have 2,728 operations, no right one reports more than 9,000."""


class Kind(IntEnum):
    """Kinds of frames, as in inside.h."""

    BEGIN = 1
    STEP = 2
    END = 3
    FAULT = 4
    LEFT = 5
    BLOCK = 6
    MISFIT = 7
    DONE = 8
    DELTA = 9
    UNDEFINED = 10
    LINES = 12


class Frame(NamedTuple):
    """One frame as it came; a named tuple, because one grading has thousands."""

    kind: int
    body: bytes
    case: int
    operation: int
    attempt: int
    allocations: int
    frees: int
    bad_frees: int
    broken: int
    live: int


_KINDS = frozenset(Kind)


class Frames:
    """The frames in a stream of bytes. After bytes that are no frame it looks for the token to go on from."""

    def __init__(self, stream: bytes, token: int, operations: int, cases: int = 0) -> None:
        """In the `stream` a program reports of so many operations, and of what is left in so many cases."""
        self.stream = stream
        self.token = token.to_bytes(8, "little")
        self.too_many = False
        """Were there more than a program of ours sends? Then it ends behind these."""
        self.most = _FRAMES + _FRAMES_EACH * operations + _FRAMES_OF_A_CASE * cases

    def __iter__(self) -> Iterator[Frame]:
        stream, token, size, most = self.stream, self.token, _FRAME.size, self.most
        find, unpack_from, whole = stream.find, _FRAME.unpack_from, len(stream)
        place = count = 0
        while (place := find(token, place)) >= 0:
            start = place + size
            if start > whole:
                return
            if count == most:
                self.too_many = True
                return
            count += 1
            _, kind, length, *rest = unpack_from(stream, place)
            end = start + length
            # a length that would swallow other frames is a lie; nothing is copied to see that
            if kind not in _KINDS or end > whole or find(token, start, end) >= 0:
                place += 1
                continue
            yield Frame(kind, stream[start:end], *rest)
            place = end
