"""Rejected programs: nothing of them is run until somebody has looked at them and allowed the symbol."""

from __future__ import annotations

from grader.core.verdict import Verdict
from grader.tests.support.programs import around
from grader.tests.support.scanned import ASKS, CONSTRUCTOR, graded, on_x86


def test_a_failing_compile_comes_first() -> None:
    """gcc's words are what a student can mend; what a rejected program would have scored is not asked."""
    record = graded(CONSTRUCTOR + "static int unused(void) { return 0; }\n")

    assert record.verdict is Verdict.COMPILE_ERROR
    assert record.would_score is None
    assert record.outcomes == ()


def test_beside_other_mistakes_of_the_build_it_is_rejected() -> None:
    """An extra main is told too."""
    record = graded(CONSTRUCTOR + "int main(void) { return 0; }\n")

    assert record.verdict is Verdict.REJECTED
    assert [finding.kind for finding in record.findings] == ["constructor", "extra-main"]
    assert record.outcomes == ()


@on_x86
def test_an_order_to_valgrind_can_be_allowed() -> None:
    """The linked program is graded then."""
    source = around("append_kv", "    ask();", top=ASKS)

    assert graded(source, "ask").verdict is Verdict.ACCEPTED
