"""Which cases cost points: the cost of each case and cause, and the hidden cases by rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

from grader.core.record import Record, in_order
from grader.core.verdict import Audience, Finding, Judged, Outcome, Verdict

_VERDICTS_THAT_COST = {
    Judged.LEAK: (Verdict.MEMORY_LEAK,),
    Judged.MEMORY_ERROR: (Verdict.MEMORY_ERROR, Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED),
}
"""The verdicts of findings that cost points of a rule that is judged in every case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenLoss:
    """Hidden cases that cost points of one rule."""

    rule: str
    outcomes: tuple[Outcome, ...]
    handout: str
    """The handout's place for the rule, when the cases were written for another rule; else empty."""
    alone: bool
    """Whether only hidden cases cost points of the rule."""


def with_costs(record: Record) -> Record:
    """Return the record with the cost of each case and cause, by the points that its rules have now.

    The causes are in the order of `in_order`.
    """
    costs: dict[str, float] = {}
    for score in record.rules:
        missing = score.max_points - score.points
        guilty = cases_that_cost(record, score.rule) if missing else []
        weight = sum(outcome.weight for outcome in guilty)
        for outcome in guilty:
            costs[outcome.case] = costs.get(outcome.case, 0.0) + missing * outcome.weight / weight
    costs = {case: round(points, 4) for case, points in costs.items()}
    causes = [
        replace(cause, points=round(sum(costs.get(case, 0.0) for case in cause.cases), 4)) for cause in record.causes
    ]
    return replace(
        record,
        outcomes=tuple(replace(outcome, points=costs.get(outcome.case, 0.0)) for outcome in record.outcomes),
        causes=tuple(in_order(causes, first=causes[:1])),
    )


def cases_that_cost(record: Record, rule: str) -> list[Outcome]:
    """Return the cases that lost points of a rule.

    A rule that no case names is judged in all cases; those with a finding of this rule lost its points.
    """
    own = [outcome for outcome in record.outcomes if outcome.rule == rule]
    if own:
        return [outcome for outcome in own if not outcome.passed]
    judged = next((score.judged for score in record.rules if score.rule == rule), Judged.CASES)
    return [
        outcome
        for outcome in record.outcomes
        if any(_costs(finding, rule, judged) for finding in record.findings_of(outcome))
    ]


def hidden_losses(record: Record, audience: Audience) -> list[HiddenLoss]:
    """Return the hidden cases that cost points, one entry for each rule that lost points through them."""
    losses = []
    for score in record.rules:
        guilty = cases_that_cost(record, score.rule) if score.points < score.max_points else []
        hidden = tuple(outcome for outcome in guilty if outcome.hidden_from(audience))
        if hidden:
            handout = "" if hidden[0].rule == score.rule else score.handout
            alone = len(hidden) == len(guilty)
            losses.append(HiddenLoss(rule=score.rule, outcomes=hidden, handout=handout, alone=alone))
    return losses


def _costs(finding: Finding, rule: str, judged: Judged) -> bool:
    """Whether this finding cost points of a rule that no case names."""
    return finding.verdict in _VERDICTS_THAT_COST[judged] if judged in _VERDICTS_THAT_COST else finding.rule == rule
