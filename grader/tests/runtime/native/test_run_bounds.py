"""What a running program may take in all, asleep too, and what of its counts is believed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.verdict import Verdict
from grader.judge.case_findings import case_findings
from grader.judge.compare import compare
from grader.labs.paged_kv.lab import lab
from grader.system import process
from grader.system.sandbox import Limits
from grader.tests.support.programs import by_hand, first_case, judged, observed
from grader.tests.support.raising import Raising


def _ran(script: str, **patience: float) -> process.Completed:
    """A program that says something ten times a second, and is listened to."""
    beat = "while :; do echo x >/proc/self/fd/{0}; sleep 0.1; done"
    return process.run(
        lambda ends: ["sh", "-c", f"{script}; {beat.format(ends[0])}"],
        cwd=Path("/"),
        limits=Limits(wall_seconds=60, silent_seconds=5.0, silent_start_seconds=20.0, **patience),  # type: ignore[arg-type]
        environment={"PATH": "/usr/bin:/bin"},
        channels=1,
    )


def test_who_fills_memory_is_ended() -> None:
    """Address space is not what counts: untouched gigabytes are legal."""
    done = _ran(f"{sys.executable} -I -c 'import time; x = bytearray(600 << 20); time.sleep(30)'")

    assert (done.large, done.silent, done.slow) == (True, False, False)
    assert done.wall_seconds < 20


def test_who_has_many_processes_is_ended() -> None:
    """Those too that left its session, and its dead, whom nobody buries before its end."""
    done = _ran(
        "for i in 1 2 3 4 5 6 7 8 9; do for j in 1 2 3 4 5 6 7 8; do setsid sh -c 'sleep 20 &' & done; done; wait"
    )

    assert (done.large, done.silent, done.slow) == (True, False, False)
    assert done.wall_seconds < 20


@pytest.mark.parametrize(("bad_frees", "broken"), [(2, 0), (0, 1)])
def test_a_count_without_an_event_is_a_finding(bad_frees: int, broken: int) -> None:
    """A program that changes the harness's counters once got no score at all."""
    case = by_hand(first_case())
    case.steps[-1] = replace(case.steps[-1], bad_frees=bad_frees, broken=broken)
    ((found,), _) = case_findings(observed(compare(case, lab().model)), lab(), optional=Raising())
    _, scores = judged(case)

    assert [finding.verdict for finding in found.findings] == [Verdict.MEMORY_ERROR]
    assert "there is no record of which ones" in found.findings[0].message
    assert sum(score.points for score in scores.values()) < sum(score.max_points for score in scores.values())
