"""The frames in what a program reports; their layout is that of drivers/frames.c."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Frame", "Frames", "Kind"]

_FRAME = struct.Struct("<QIIiiIIIIII")


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
    NO_ROOM = 11
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

    def __init__(self, stream: bytes, token: int) -> None:
        self.stream = stream
        self.token = token.to_bytes(8, "little")

    def __iter__(self) -> Iterator[Frame]:
        place = 0
        while (place := self.stream.find(self.token, place)) >= 0:
            if place + _FRAME.size > len(self.stream):
                return
            _, kind, length, *rest = _FRAME.unpack_from(self.stream, place)
            start = place + _FRAME.size
            end = start + length
            body = self.stream[start:end]
            lies = len(body) < length or self.token in body  # its length would swallow other frames
            if kind not in _KINDS or lies:
                place += 1
                continue
            yield Frame(kind, body, *rest)
            place = end
