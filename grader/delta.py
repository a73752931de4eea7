"""Records as what they changed: the body of a DELTA frame (drivers/frames.c says how it is laid out).

Its first two words count the words behind the reply that are as in the record before, and those at the end that are;
then come the reply and what lies between.
"""

from __future__ import annotations

import struct

__all__ = ["applied", "length_after", "whole"]

_COUNTS = struct.Struct("<2i")
_WORD = 4
_REPLY_END = 8
_HEAD = _COUNTS.size + _REPLY_END


def whole(record: bytes) -> bytes:
    """The delta that makes this record, whatever was before."""
    return _COUNTS.pack(0, 0) + record


def length_after(delta: bytes, before: int) -> int:
    """How many bytes the record has that a driver's delta makes of one of `before` bytes.

    Raises `ValueError` when the delta says that it shares more than those.
    """
    if len(delta) < _HEAD:
        raise ValueError("a record has no reply")
    same, tail = _COUNTS.unpack_from(delta)
    shared: int = _WORD * (same + tail)
    if same < 0 or tail < 0 or _REPLY_END + shared > before:
        raise ValueError("a record is said to share more with the last one than that has")
    return len(delta) - _COUNTS.size + shared


def applied(delta: bytes, before: bytes) -> bytes:
    """The record that a delta makes of the one before, which `length_after` has found long enough."""
    same, tail = _COUNTS.unpack_from(delta)
    return b"".join(
        (
            delta[_COUNTS.size : _HEAD],
            before[_REPLY_END : _REPLY_END + _WORD * same],
            delta[_HEAD:],
            before[len(before) - _WORD * tail :],
        )
    )
