"""Deltas: the form in which a driver reports a record, as what an operation changed in the record before.

A record is a sequence of words and begins with the two of the reply. At its end may stand memory, of which an operation
changes little. There are two kinds of deltas:

    few words := -1 reply {place word}                at most two words differ from the record before, which is as long;
                                                      places are counted from the end, where -1 is the last word
    the rest  := memory start end reply front changed the record is the reply, `front` and so many words of `memory`;
                                                      those from `start` to `end` are `changed`, the others are as at
                                                      the end of the record before

A record without such memory is reported whole, whatever was before.
"""

from __future__ import annotations

import struct

__all__ = ["applied", "length_after", "whole"]

_WORD = 4
_REPLY = 2 * _WORD
_FEW_WORDS = -1
_FIRST = struct.Struct("<i")
_PAIR = struct.Struct("<2i")
_NO_WORD_SIZE = _FIRST.size + _REPLY
_FEW_WORDS_SIZES = (_NO_WORD_SIZE, _NO_WORD_SIZE + _PAIR.size, _NO_WORD_SIZE + 2 * _PAIR.size)
_THE_REST = struct.Struct("<3i")


def whole(record: bytes) -> bytes:
    """The delta that makes this record, whatever was before."""
    return _THE_REST.pack(0, 0, 0) + record


def length_after(delta: bytes, before: int) -> int:
    """How many bytes the record has that a driver's delta makes of one of `before` bytes.

    Raises `ValueError` when that cannot be made.
    """
    if len(delta) < _NO_WORD_SIZE:
        raise ValueError("a record has no reply")
    if _FIRST.unpack_from(delta) == (_FEW_WORDS,):
        if len(delta) not in _FEW_WORDS_SIZES:
            raise ValueError("a delta ends within a word, or has more than few")
        if before < _REPLY:
            raise ValueError("there is no record before")
        if any(not _REPLY - before <= _WORD * place < 0 for place, _ in _PAIR.iter_unpack(delta[_NO_WORD_SIZE:])):
            raise ValueError("a word is said to be new where the last record has none")
        return before
    memory, start, end = _THE_REST.unpack_from(delta)
    told: int = len(delta) - _THE_REST.size - _WORD * (end - start)
    if not (0 <= start <= end <= memory and told >= _REPLY):
        raise ValueError("a record has no reply")
    shared: int = _WORD * memory
    if shared and before < _REPLY + shared:
        raise ValueError("a record is said to share more with the last one than that has")
    return told + shared


def applied(delta: bytes, before: bytes) -> bytes:
    """The record that a delta makes of the one before, for which `length_after` has found that it can."""
    if _FIRST.unpack_from(delta) == (_FEW_WORDS,):
        words = bytearray(before)
        words[:_REPLY] = delta[_FIRST.size : _NO_WORD_SIZE]
        for place, word in _PAIR.iter_unpack(delta[_NO_WORD_SIZE:]):
            _FIRST.pack_into(words, _WORD * place, word)
        return bytes(words)
    memory, start, end = _THE_REST.unpack_from(delta)
    first = len(before) - _WORD * memory
    changed = len(delta) - _WORD * (end - start)
    return b"".join(
        (
            delta[_THE_REST.size : changed],
            before[first : first + _WORD * start],
            delta[changed:],
            before[first + _WORD * end :],
        )
    )
