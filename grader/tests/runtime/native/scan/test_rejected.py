"""Rejected programs: nothing of them is run until somebody has looked at them and allowed the symbol."""

from __future__ import annotations

from grader.core.verdict import Verdict
from grader.report.text import render
from grader.tests.support.programs import around, right
from grader.tests.support.scanned import ASKS, CONSTRUCTOR, DESTRUCTOR, graded, on_x86


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


def test_what_somebody_allowed_is_graded_and_noted() -> None:
    """By its symbol, one by one; other names change nothing."""
    hooks = CONSTRUCTOR + DESTRUCTOR.removeprefix(right()).replace("hook", "late").replace("int n;", "static int n;")
    neither, one, both = graded(hooks, "other"), graded(hooks, "hook"), graded(hooks, "hook", "late", "other")

    assert [finding.field for finding in neither.findings] == ["hook", "late"]
    assert [finding.field for finding in one.findings] == ["late"]
    assert (one.verdict, one.allowed) == (Verdict.REJECTED, ("hook",))
    assert (both.verdict, both.score, both.allowed) == (Verdict.ACCEPTED, both.max_score, ("hook", "late"))
    assert "hook, late allowed" in " ".join(render(both).split())


@on_x86
def test_an_order_to_valgrind_can_be_allowed() -> None:
    """The linked program is graded then."""
    source = around("append_kv", "    ask();", top=ASKS)

    assert graded(source, "ask").verdict is Verdict.ACCEPTED


def test_the_report_says_what_to_take_away() -> None:
    """To students; instructors see the option too, for each symbol."""
    record = graded(CONSTRUCTOR)
    student, instructor = render(record), render(record, audience="instructor")

    assert "rejected until somebody has looked at it" in student
    assert "hook is called before main" in student
    assert "Take the constructor away" in " ".join(student.split())
    assert "--allow" not in student
    assert "--allow hook" in instructor
