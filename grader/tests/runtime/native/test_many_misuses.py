"""A program that misuses memory a thousand times in each case costs the grader little, and loses what it must."""

from __future__ import annotations

import pytest

from grader.runtime.native.native_played import HeapEvent
from grader.runtime.native.replay import FrameKind
from grader.tests.runtime.native.test_own_bounds import EVENT
from grader.tests.runtime.native.test_replay import frame, taken_down


def test_after_very_many_reports_a_few_of_each_case_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of each kind, so that none hides another; a case that had begun is not cut short."""
    kinds = (HeapEvent.UNFILLED, HeapEvent.BAD_FREE, HeapEvent.LIVE)
    reports = [EVENT.pack(kind, 0, 0, 0, 0, 8, 1, 2, 3, 0) for kind in kinds]
    many = frame(FrameKind.BLOCK, 0, 0, reports[1]) * 10_000 + frame(FrameKind.BLOCK, 0, 6, reports[2]) * 700
    later = b"".join(frame(FrameKind.BLOCK, 1, 0, report) * 500 for report in reports)
    played = taken_down(monkeypatch, frame(FrameKind.BEGIN, 0, -1) + many + frame(FrameKind.BEGIN, 1, -1) + later)
    counts = [[sum(event.event is kind for event in one.events) for kind in kinds] for one in played]

    assert counts == [[0, 1000, 700], [10, 10, 10]]
