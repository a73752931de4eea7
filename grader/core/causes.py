"""Failing cases in the order of a report: grouped by cause, most costly first, limited to what the reader may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from grader.core.record import Record
from grader.core.verdict import Finding, Judged, Outcome, Verdict, Visibility

_EVERYWHERE = {
    Judged.LEAK: (Verdict.MEMORY_LEAK,),
    Judged.MEMORY_ERROR: (Verdict.MEMORY_ERROR, Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED),
}
"""The verdicts of findings that cost points of a rule that is judged in every case."""


class Audience(StrEnum):
    """The reader of a report. Of a hidden case, students see title and rule; instructors see everything."""

    STUDENT = "student"
    INSTRUCTOR = "instructor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Failing cases with the same cause; a report shows the first of them."""

    outcomes: tuple[Outcome, ...]
    lost: float
    """The points that these cases cost, approximately."""

    @property
    def shown(self) -> Outcome:
        """The case that represents the group."""
        return self.outcomes[0]

    @property
    def others(self) -> tuple[Outcome, ...]:
        """The other cases of the group."""
        return self.outcomes[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenLoss:
    """Hidden cases that cost points of one rule."""

    rule: str
    outcomes: tuple[Outcome, ...]
    points: float
    """The points of the rule that they cost, approximately."""
    handout: str
    """The handout's place for the rule, when the cases were written for another rule; else empty."""
    alone: bool
    """Whether only hidden cases cost points of the rule."""


def is_hidden(outcome: Outcome, audience: Audience) -> bool:
    """Whether this reader must not see what the case does."""
    return outcome.visibility is Visibility.HIDDEN and audience is not Audience.INSTRUCTOR


def grouped(record: Record, outcomes: Iterable[Outcome]) -> list[Group]:
    """Group the failing `outcomes` by cause: the diagnosed cause first, then by the points they cost.

    Within a group the diagnosed case comes first, else the simplest: public before hidden, then without pokes and odd
    settings (`Outcome.plain`), then short.
    """
    lost = lost_points(record)
    by_cause: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.verdict is not Verdict.ACCEPTED:
            by_cause.setdefault(outcome.cause or outcome.case, []).append(outcome)
    diagnosed = record.diagnosis.case if record.diagnosis is not None else None

    def place(outcome: Outcome) -> tuple[bool, bool, bool, int]:
        hidden = outcome.visibility is Visibility.HIDDEN
        return outcome.case != diagnosed, hidden, not outcome.plain, _length(outcome)

    groups = [
        Group(outcomes=tuple(sorted(members, key=place)), lost=sum(lost.get(outcome.case, 0) for outcome in members))
        for members in by_cause.values()
    ]
    return sorted(groups, key=lambda group: (group.shown.case != diagnosed, -group.lost, -len(group.outcomes)))


def lost_points(record: Record) -> dict[str, float]:
    """Return the approximate cost of each case: a rule's lost points are divided by weight among its failing cases."""
    lost: dict[str, float] = {}
    for score in record.rules:
        missing = score.max_points - score.points
        guilty = guilty_of(record, score.rule) if missing else []
        weight = sum(outcome.weight for outcome in guilty)
        for outcome in guilty:
            lost[outcome.case] = lost.get(outcome.case, 0) + missing * outcome.weight / weight
    return lost


def guilty_of(record: Record, rule: str) -> list[Outcome]:
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
        if any(_costs(finding, rule, judged) for finding in findings_of(record, outcome))
    ]


def hidden_losses(record: Record, audience: Audience) -> list[HiddenLoss]:
    """Return the hidden cases that cost points, one entry for each rule that lost points through them."""
    losses = []
    for score in record.rules:
        missing = score.max_points - score.points
        guilty = guilty_of(record, score.rule) if missing else []
        hidden = tuple(outcome for outcome in guilty if is_hidden(outcome, audience))
        if hidden:
            share = sum(outcome.weight for outcome in hidden) / sum(outcome.weight for outcome in guilty)
            loss = HiddenLoss(
                rule=score.rule,
                outcomes=hidden,
                points=missing * share,
                handout="" if hidden[0].rule == score.rule else score.handout,
                alone=len(hidden) == len(guilty),
            )
            losses.append(loss)
    return losses


def clauses_of(outcome: Outcome) -> list[str]:
    """Return what a case tests, with the places in the handout: `Task 2: create_sequence returns NULL when ...`."""
    places = [name.partition("/")[0] for name in outcome.handout]
    clauses = [f"{place}: {clause}" for place, clause in zip(places, outcome.clauses, strict=False)]
    return clauses or list(outcome.handout)


def of_the_build(record: Record) -> list[Finding]:
    """Return the findings from before any case was run."""
    return [finding for finding in record.findings if finding.case is None]


def findings_of(record: Record, outcome: Outcome) -> list[Finding]:
    """Return the findings of one case."""
    return [record.findings[place] for place in outcome.findings]


def leading_finding(record: Record, outcome: Outcome) -> Finding | None:
    """Return the finding for the first thing that went wrong in a case, None when there is none."""
    findings = findings_of(record, outcome)
    difference = outcome.difference
    if difference is not None:
        same = [
            finding
            for finding in findings
            if (finding.operation, finding.field) == (difference.operation, difference.field)
        ]
        return same[0] if same else None
    return min(findings, key=lambda finding: finding.operation or 0, default=None)


def bad_operation(record: Record, outcome: Outcome) -> int:
    """Return the operation, counted from 1, at which a case first went wrong; 0 when it is unknown."""
    if outcome.difference is not None:
        return outcome.difference.operation
    leading = leading_finding(record, outcome)
    return (leading.operation if leading is not None else None) or 0


def hint_of(record: Record, group: Group) -> str:
    """Return the group's hint; "" when it is the diagnosis's hint, with which the report begins."""
    first = record.diagnosis.hint if record.diagnosis is not None else ""
    return "" if group.shown.hint == first else group.shown.hint


def broken_by(record: Record, group: Group) -> str:
    """Return the sentence of the handout that the group breaks; "" when `hint_of` returns ""."""
    return group.shown.broken if hint_of(record, group) else ""


def _costs(finding: Finding, rule: str, judged: Judged) -> bool:
    """Whether this finding cost points of a rule that no case names."""
    return finding.verdict in _EVERYWHERE[judged] if judged in _EVERYWHERE else finding.rule == rule


def _length(outcome: Outcome) -> int:
    return outcome.steps[-1].number if outcome.steps else 0
