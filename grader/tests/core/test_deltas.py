"""Records as deltas: what is restored is what was there, and what did not change takes no room."""

from __future__ import annotations

import random

import pytest

from grader.core.case import deltas, restored

_STATE = random.Random(1).randbytes(4000)


def size_of(records: list[bytes]) -> int:
    """The bytes that are not taken over."""
    return sum(len(more) for delta in deltas(records) for _, _, more in delta)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [b""],
        [b"", b"", b"x", b""],
        [b"abc", b"abc", b"abcabc", b"bc"],
        [b"a" * 1000, b"a" * 1001, b"a" * 999, b"b" + b"a" * 998],
        [_STATE, _STATE[::-1], _STATE[64:], _STATE[:64] + _STATE, _STATE[:100] + b"new" + _STATE[100:]],
    ],
)
def test_what_is_restored_is_the_same(records: list[bytes]) -> None:
    """Whatever comes after what."""
    assert restored(deltas(records)) == tuple(records)


def test_random_edits_are_restored() -> None:
    """Insertions, removals and changes anywhere, of any length."""
    numbers = random.Random(7)
    records = [b""]
    for _ in range(400):
        before = records[-1]
        start = numbers.randint(0, len(before))
        stop = min(len(before), start + numbers.choice((0, 1, 8, 200)))
        new = numbers.randbytes(numbers.choice((0, 1, 8, 300)))
        more = new if numbers.random() < 0.5 else before[stop : stop + 100]
        records.append(before[:start] + more + before[stop:])

    assert restored(deltas(records)) == tuple(records)


def test_only_what_changed_is_stored() -> None:
    """Two changes with an insertion between them: what is behind it has the same distance from the end."""
    edited = bytearray(_STATE)
    edited[100] ^= 1
    edited[3900] ^= 1
    edited[2000:2000] = b"new"

    assert size_of([_STATE, _STATE]) == len(_STATE)
    assert size_of([_STATE, bytes(edited)]) - len(_STATE) < 300
