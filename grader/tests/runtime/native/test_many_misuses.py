"""A program that misuses memory a thousand times in each case costs the grader little, and loses what it must."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from grader.core.record import from_json
from grader.runtime.native.native_played import HeapEvent
from grader.runtime.native.replay import FrameKind
from grader.tests.runtime.native.test_own_bounds import EVENT
from grader.tests.runtime.native.test_replay import frame, taken_down
from grader.tests.support.command import ROOT, SAMPLES, command, environment

_SAMPLE = SAMPLES / "memory_error" / "hostile_misuses_memory_a_thousand_times_in_each_case"
_RIGHT = SAMPLES / "accepted" / "yoda_crlf"


def test_after_very_many_reports_a_few_of_each_case_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of each kind, so that none hides another; a case that had begun is not cut short."""
    kinds = (HeapEvent.UNFILLED, HeapEvent.BAD_FREE, HeapEvent.LIVE)
    reports = [EVENT.pack(kind, 0, 0, 0, 0, 8, 1, 2, 3, 0) for kind in kinds]
    many = frame(FrameKind.BLOCK, 0, 0, reports[1]) * 10_000 + frame(FrameKind.BLOCK, 0, 6, reports[2]) * 700
    later = b"".join(frame(FrameKind.BLOCK, 1, 0, report) * 500 for report in reports)
    played = taken_down(monkeypatch, frame(FrameKind.BEGIN, 0, -1) + many + frame(FrameKind.BEGIN, 1, -1) + later)
    counts = [[sum(event.event is kind for event in one.events) for kind in kinds] for one in played]

    assert counts == [[0, 1000, 700], [10, 10, 10]]


def _graded(path: Path, output: Path) -> resource.struct_rusage:
    """Grade a submission, and return what that used: of the grader and of all that it started."""
    words = command("run", path, "--format", "json", "--output", output)
    with subprocess.Popen(words, cwd=ROOT, env=environment(), stderr=subprocess.DEVNULL) as process:
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    return usage


def test_a_quarter_of_a_million_misuses_cost_little(tmp_path: Path) -> None:
    """It took 13 s and 350 MB, 16 times as long as an ordinary grading; no case is spared for it."""
    ordinary = _graded(_RIGHT, tmp_path / "right.json")
    usage = _graded(_SAMPLE, tmp_path / "wrong.json")
    record = from_json((tmp_path / "wrong.json").read_bytes())
    lost = {rule.rule: (rule.points, rule.passed) for rule in record.rules if rule.rule in ("leak", "memory-error")}

    assert usage.ru_maxrss - ordinary.ru_maxrss < 100 << 10
    assert usage.ru_utime + usage.ru_stime < 8 * (ordinary.ru_utime + ordinary.ru_stime)
    assert lost == {"leak": (0, 0), "memory-error": (0, 0)}
    assert all(any(finding.case == outcome.case for finding in record.findings) for outcome in record.outcomes)
    assert "at least 10 allocations (80 bytes)" in "".join(finding.message for finding in record.findings)
