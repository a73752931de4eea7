"""Records of a trace as what each has that the record before has not: to store them, and to load them fast.

Of a record with hundreds of entries, an operation changes a few bytes at some places, and may shift what is behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Delta = tuple[tuple[int, int, bytes], ...]
"""From where and up to where the bytes before are taken over, and the bytes that follow them; again and again."""

_CHUNK = 64
"""Bytes that are compared at once; less saves nothing, because what is taken over costs a step too."""


def deltas(records: Iterable[bytes]) -> tuple[Delta, ...]:
    """Return the records as deltas (see `restored`)."""
    before = b""
    packed = []
    for record in records:
        packed.append(tuple(_delta(before, record)))
        before = record
    return tuple(packed)


def restored(stored: Iterable[Delta]) -> tuple[bytes, ...]:
    """Return the records of which `deltas` are stored."""
    before = b""
    records = []
    for delta in stored:
        view = memoryview(before)
        parts: list[bytes | memoryview] = []
        for start, stop, more in delta:
            parts += (view[start:stop], more)
        before = b"".join(parts)
        records.append(before)
    return tuple(records)


def _delta(before: bytes, record: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield a record as a delta: its middle continues, lies as far from the start or end as before, or is searched."""
    same = _same(before, record)
    tail = _same(before[same:][::-1], record[same:][::-1])
    end, shift = len(record) - tail, len(before) - len(record)
    start, stop, more = 0, same, b""
    for place in range(same, end, _CHUNK):
        chunk = record[place : min(place + _CHUNK, end)]
        known = next((at for at in (stop, place, place + shift) if at >= 0 and before.startswith(chunk, at)), -1)
        source = known if known >= 0 else before.find(chunk)
        if source < 0:
            more += chunk
        elif source == stop and not more:
            stop += len(chunk)
        else:
            yield start, stop, more
            start, stop, more = source, source + len(chunk), b""
    if end + shift == stop and not more:
        stop += tail
    elif tail:
        yield start, stop, more
        start, stop, more = end + shift, end + shift + tail, b""
    yield start, stop, more


def _same(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many bytes at the start are the same."""
    least, most = 0, min(len(first), len(second))
    while least < most:
        middle = (least + most + 1) // 2
        if first[least:middle] == second[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
