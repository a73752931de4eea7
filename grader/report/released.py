"""What a reader may see of a record, by the policy in force when it was made. Every format shows only that.

Instructors see everything. A student sees the record without what the policy holds back, so no format can show it: of
`rules` nothing is left but score, verdict and the points of each rule, of `score` not even these.
"""

from __future__ import annotations

from dataclasses import replace

from grader.core.record import Record
from grader.core.verdict import Audience, Feedback, RuleScore

_WORDS = {
    Feedback.RULES: "Only the points of each rule are shown for this hand-in.",
    Feedback.SCORE: "Only the score is shown for this hand-in.",
}


def released(record: Record, audience: Audience) -> Record:
    """Return the part of a record that this reader may see; its `feedback` says how much that is."""
    if audience is Audience.INSTRUCTOR or record.feedback is Feedback.FULL:
        return replace(record, feedback=Feedback.FULL)
    by_rule = record.feedback is Feedback.RULES
    return replace(
        record,
        submission=replace(record.submission, source=()),
        rules=tuple(map(_points_alone, record.rules)) if by_rule else (),
        overrides=record.overrides if by_rule else (),
        would_score=None,
        would_rules=(),
        causes=(),
        stages=(),
        outcomes=(),
        findings=(),
        advice=(),
        pictures=(),
        notation={},
        output="",
        unchecked="",
        failed_stages=(),
    )


def _points_alone(score: RuleScore) -> RuleScore:
    return RuleScore(
        rule=score.rule,
        title=score.title,
        handout=score.handout,
        points=score.points,
        max_points=score.max_points,
        cases=0,
        passed=0,
    )


def held_back(record: Record) -> str:
    """Return the sentence that says that this reader sees only a part; empty when it is all."""
    return _WORDS.get(record.feedback, "")
