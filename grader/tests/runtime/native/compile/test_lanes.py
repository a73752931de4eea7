"""The dearer ways to grade give the same record; grader.tests.trials.lanes compares all samples."""

from __future__ import annotations

import pytest

from grader.tests.support.command import ROOT
from grader.tests.support.lanes import differing, in_both_lanes, with_every_case_alone

_SAMPLES = (
    "accepted/c11_showcase",
    "memory_error/create_compares_unset_entry",
    "memory_leak/free_keeps_l2_tables",
    "wrong_answer/no_copy_on_write",
)


@pytest.mark.parametrize("name", _SAMPLES)
def test_a_disputed_result_is_the_same_in_the_stock_lane(name: str) -> None:
    """Verdict, points, causes, findings, their sentences and lines: all but what the grading cost.

    So does a grading in which each case has a process of its own from the start.
    """
    path = ROOT / "submissions" / "paged_kv" / name
    fast, stock = in_both_lanes(path)

    assert list(differing(fast, stock)) == []
    assert list(differing(fast, with_every_case_alone(path))) == []
