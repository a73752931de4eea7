"""Both lanes give the same record; grader.tests.trials.lanes compares all samples."""

from __future__ import annotations

import pytest

from grader.tests.support.command import ROOT
from grader.tests.support.lanes import differing, in_both_lanes

_SAMPLES = (
    "accepted/c11_showcase",
    "memory_error/create_compares_unset_entry",
    "memory_leak/free_keeps_l2_tables",
    "wrong_answer/no_copy_on_write",
)


@pytest.mark.parametrize("name", _SAMPLES)
def test_a_disputed_result_is_the_same_in_the_stock_lane(name: str) -> None:
    """Verdict, points, causes, findings, their sentences and lines: all but what the grading cost."""
    assert list(differing(*in_both_lanes(ROOT / "submissions" / "paged_kv" / name))) == []
