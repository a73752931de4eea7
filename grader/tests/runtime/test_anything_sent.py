"""Whatever a program sends, everything is judged and nothing raises: frames, records and XML, changed at random."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from grader.runtime.native.replay import FrameKind
from grader.tests.runtime.native.test_replay import TOKEN, frame, records_of, story, taken_down
from grader.tests.support.programs import (
    expected_records,
    first_case,
    judged,
    second_case,
)

_EVENT = struct.Struct("<5i4x4Qq")


def mutated(data: bytes, seed: int, changes: int) -> bytes:
    """With so many of its bytes, words or pieces changed."""
    chance = random.Random(seed)
    words = bytearray(data)
    for _ in range(changes):
        at = chance.randrange(len(words))
        what = chance.randrange(5)
        if what == 0:
            words[at] = chance.randrange(256)
        elif what == 1:
            value = chance.choice([0, 1, -1, 5, 2**31 - 1, -(2**31), 1000, 64])
            words[at // 4 * 4 : at // 4 * 4 + 4] = struct.pack("<i", value)
        elif what == 2:
            del words[at : at + chance.randrange(1, 60)]
        elif what == 3:
            start = chance.randrange(len(words))
            words[at:at] = words[start : start + chance.randrange(1, 300)]
        else:
            words[at:at] = TOKEN.to_bytes(8, "little")
    return bytes(words) or b"x"


_ANY = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_ANY
@given(st.integers(), st.integers(1, 12))
def test_no_stream_ends_in_an_exception(monkeypatch: pytest.MonkeyPatch, seed: int, changes: int) -> None:
    """Frames and records: taken down, compared, diagnosed and scored."""
    extra = frame(FrameKind.FAULT, 0, 3, struct.pack("<iiQ3Q", 11, 1, 0, 1, 2, 3)) + frame(
        FrameKind.BLOCK, 0, 6, _EVENT.pack(3, 0, 0, 0, 0, 8, 1, 2, 3, 0)
    )
    stream = story(0, *expected_records(first_case())) + extra + story(1, *expected_records(second_case()))
    played = taken_down(monkeypatch, mutated(stream, seed, changes))
    judged(*played)

    assert all(len(records_of(one)) == len(one.steps) for one in played)
    assert all(isinstance(one.unexplained_end, str) for one in played)
