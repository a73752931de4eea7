"""Rejected programs: nothing of them is run until somebody has looked at them and allowed the symbol."""

from __future__ import annotations

from grader.core.verdict import Verdict
from grader.tests.support.scanned import CONSTRUCTOR, graded


def test_a_failing_compile_comes_first() -> None:
    """gcc's words are what a student can mend; what a rejected program would have scored is not asked."""
    record = graded(CONSTRUCTOR + "static int unused(void) { return 0; }\n")

    assert record.verdict is Verdict.COMPILE_ERROR
    assert record.would_score is None
    assert record.outcomes == ()
