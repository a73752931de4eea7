"""What became of causes from one hand-in to the next: fixed, new, or still there."""

from __future__ import annotations

from dataclasses import replace

from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Verdict, Visibility
from grader.report.progress import progressed
from grader.tests.support.graded import drawn
from grader.tests.support.handmade import outcome, record_of

COW = Cause(
    rule="cow", verdict=Verdict.WRONG_ANSWER, sentence="block 1 is 0", clause="Task 4: it is copied",
    hint="copy block 1", call="append_kv", cases=("append/a",),
)  # fmt: skip


def hand_in(*causes: Cause, score: int = 4) -> Record:
    """A submission that fails a public and a hidden case, for these causes."""
    hidden = outcome("append/h", passed=False, verdict=Verdict.WRONG_ANSWER, visibility=Visibility.HIDDEN)
    record = record_of(outcome("append/a", passed=False, verdict=Verdict.WRONG_ANSWER), hidden)
    return replace(record, causes=causes, score=score)


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
