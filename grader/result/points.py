"""The score, the verdict and the costs in a record, by the points of its rules; also those of another rubric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from grader.core.errors import DriverError
from grader.core.losses import with_costs
from grader.core.record import Record
from grader.core.rubric import Rubric
from grader.core.verdict import NOT_IMPORTED, Cause, RuleScore, Verdict
from grader.judge import score


def rescored(record: Record, rubric: Rubric) -> Record | None:
    """Return the record that a grading by this rubric would make now, with its points, titles and places of rules.

    What students see of it is what the rubric says now. The rubric must have the same rules, judged in the same way.
    The pictures stay those of the grading, and a record without a score stays as it is. None: other rules lose points
    than before, so only a grading knows the rules of the causes.
    """
    if record.score is None:
        return record
    rules = score.rescored(record.rules, rubric)
    if not score.lose_alike(record.rules, rules):
        return None
    record = replace(record, feedback=rubric.feedback_at(datetime.now(UTC), record.hand_in))
    return with_rules(record, rules, score.rescored(record.would_rules, rubric))


def with_rules(record: Record, rules: Sequence[RuleScore], would: Sequence[RuleScore]) -> Record:
    """Return the record with these scores: its score and verdict, and what each case and cause costs.

    `would` are those of `would_score`.
    """
    points, most = score.total(rules), sum(rule.max_points for rule in rules)
    verdict = record.verdict
    if not record.build_findings:
        first = record.first_cause
        verdict = by_points(points, most, first.verdict if first is not None else Verdict.ACCEPTED)
    scored = replace(
        record,
        causes=tuple(_with_build_clause(record, rules)),
        rules=tuple(rules),
        score=points,
        max_score=most,
        verdict=verdict,
        would_score=score.total(would) if would else None,
        would_rules=tuple(would),
    )
    return with_costs(scored)


def _with_build_clause(record: Record, rules: Sequence[RuleScore]) -> list[Cause]:
    """Return the causes; that of a failed build with what the handout demands, if a compiler or Python shows it."""
    if not record.build_findings or record.build_findings[0].kind not in ("compiler", NOT_IMPORTED):
        return list(record.causes)
    first, *others = record.causes
    rule = next(rule for rule in rules if rule.rule == first.rule)
    return [replace(first, clause=": ".join(filter(None, (rule.handout, rule.title)))), *others]


def by_points(points: int, most: int, diagnosed: Verdict) -> Verdict:
    """Return the verdict of a submission that builds. Raises `DriverError` when no diagnosis explains a loss."""
    if points == most:
        return Verdict.ACCEPTED
    if diagnosed is Verdict.ACCEPTED:
        raise DriverError("points were lost, but no finding says why")
    return diagnosed
