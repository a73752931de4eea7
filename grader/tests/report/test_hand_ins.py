"""What became of causes from one hand-in to the next: fixed, new, or still there."""

from __future__ import annotations

from dataclasses import replace

from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Finding, Verdict, Visibility
from grader.report.hand_ins import progressed
from grader.tests.support.graded import drawn
from grader.tests.support.handmade import outcome, record_of

COW = Cause(
    rule="cow", verdict=Verdict.WRONG_ANSWER, sentence="block 1 is 0", clause="Task 4: it is copied",
    hint="copy block 1", call="append_kv", cases=("append/a",),
)  # fmt: skip
LIST = replace(COW, rule="list", clause="Task 2: at the tail")


def hand_in(*causes: Cause, score: int = 4) -> Record:
    """A submission that fails a public and a hidden case, for these causes."""
    hidden = outcome("append/h", passed=False, verdict=Verdict.WRONG_ANSWER, visibility=Visibility.HIDDEN)
    record = record_of(outcome("append/a", passed=False, verdict=Verdict.WRONG_ANSWER), hidden)
    return replace(record, causes=causes, score=score)


def test_a_cause_is_known_again_by_rule_call_and_sentence() -> None:
    """Lines, values and hints are others in the next hand-in."""
    now = replace(COW, hint="copy block 7", sentence="block 7 is 0", cases=("append/a",))
    each = progressed(hand_in(COW, LIST, score=2), hand_in(now, replace(COW, call="fork_sequence")), Audience.STUDENT)

    assert [cause.rule for cause in each.fixed] == ["list"]
    assert [cause.call for cause in each.new] == ["fork_sequence"]
    assert [cause.hint for cause in each.still] == ["copy block 7"]
    assert (each.score, each.gain, each.differs) == ((2, 4), 2, True)


def test_nothing_changes_between_a_hand_in_and_itself() -> None:
    """Neither for a real submission with several causes."""
    record = drawn("four_common_mistakes")
    each = progressed(record, record, Audience.INSTRUCTOR)

    assert not each.differs
    assert len(each.still) > 3
    assert (each.fixed, each.new) == ((), ())


def test_two_causes_in_one_record_may_be_the_same() -> None:
    """Then their costs are added."""
    twice = hand_in(COW, replace(COW, hint="another mistake"))
    (cause,) = progressed(twice, twice, Audience.STUDENT).still

    assert cause.hint == "copy block 1"
    assert cause.points == 2 * twice.outcomes[0].points > 0


def test_a_build_that_fails_is_a_cause() -> None:
    """By its hint, because nothing was called; it costs all points."""
    broken = Cause(rule="compile", verdict=Verdict.COMPILE_ERROR, sentence="expected ;", hint="A ; is missing.")
    finding = Finding(rule="compile", verdict=Verdict.COMPILE_ERROR, message="expected ;", kind="compiler")
    failing = replace(record_of(verdict=Verdict.COMPILE_ERROR, score=0), causes=(broken,), findings=(finding,))
    other = replace(failing, causes=(replace(broken, hint="A } is missing."),))

    assert progressed(failing, hand_in(COW), Audience.STUDENT).fixed == (replace(broken, points=6.0),)
    assert [cause.hint for cause in progressed(failing, other, Audience.STUDENT).new] == ["A } is missing."]


def test_causes_of_hidden_cases_are_for_instructors() -> None:
    """As in every report."""
    hidden = replace(COW, cases=("append/h",))

    assert progressed(hand_in(hidden), hand_in(), Audience.STUDENT).fixed == ()
    assert len(progressed(hand_in(hidden), hand_in(), Audience.INSTRUCTOR).fixed) == 1
