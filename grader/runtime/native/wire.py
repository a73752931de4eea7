"""Read the frames in what a program reports; their layout is that of harness/frames.c.

Student code can find the token and send frames of its own. So reading costs at most one pass through the stream, and no
more frames are read than the harness alone would send.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

_FRAME = struct.Struct("<QIIiiIIIIII")

_FRAMES, _FRAMES_EACH, _FRAMES_OF_A_CASE = 20_000, 10, 1000
"""The most frames of a program: a base, more for each operation, and more for each case, for memory that is not freed
(heap.c reports no more). With 276 cases, which have 2,728 operations, no correct program sends more than 9,000."""


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
    """The frames in a stream of bytes. After bytes that are no frame, reading goes on at the next token."""

    def __init__(self, stream: bytes, token: int, operations: int, cases: int = 0) -> None:
        """Take the `stream` in which a program reports so many operations, and what is left over in so many cases."""
        self.stream = stream
        self.token = token.to_bytes(8, "little")
        self.too_many = False
        """Whether there were more frames than the harness sends. Then reading stops after the allowed number."""
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
            # a length that would cover other frames is forged; this check copies nothing
            if kind not in _KINDS or end > whole or find(token, start, end) >= 0:
                place += 1
                continue
            yield Frame(kind, stream[start:end], *rest)
            place = end
