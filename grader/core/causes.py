"""Failing cases as a student should meet them: by cause, dearest first, and only what the reader may see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from grader.core.record import Record
from grader.core.verdict import Finding, Judged, Outcome, Verdict, Visibility

__all__ = [
    "Audience",
    "Group",
    "HiddenLoss",
    "bad_operation",
    "broken_by",
    "clauses_of",
    "findings_of",
    "grouped",
    "guilty_of",
    "hidden_losses",
    "hint_of",
    "is_hidden",
    "lost_points",
    "of_the_build",
    "trouble_of",
]


_EVERYWHERE = {
    Judged.LEAK: (Verdict.MEMORY_LEAK,),
    Judged.MEMORY_ERROR: (Verdict.MEMORY_ERROR, Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED),
}
"""The findings that cost points of a rule which is judged in every case."""


class Audience(StrEnum):
    """Who reads. Of a hidden case students see title and rule, instructors see all."""

    STUDENT = "student"
    INSTRUCTOR = "instructor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Failing cases with one cause; the first of them is the one to show."""

    outcomes: tuple[Outcome, ...]
    lost: float
    """Points that these cases cost, about."""

    @property
    def shown(self) -> Outcome:
        """The case that stands for all."""
        return self.outcomes[0]

    @property
    def others(self) -> tuple[Outcome, ...]:
        """The rest of them."""
        return self.outcomes[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenLoss:
    """Hidden cases that cost points of one rule."""

    rule: str
    outcomes: tuple[Outcome, ...]
    points: float
    """What they cost of it, about."""
    handout: str
    """Where the handout speaks of what they are judged by, when it is not what they test."""
    alone: bool
    """Does no case that the reader may see cost points of the rule?"""


def is_hidden(outcome: Outcome, audience: Audience) -> bool:
    """Must this reader not see what the case does?"""
    return outcome.visibility is Visibility.HIDDEN and audience is not Audience.INSTRUCTOR


def grouped(record: Record, outcomes: Iterable[Outcome]) -> list[Group]:
    """The failing ones among `outcomes`, by cause: the diagnosed cause first, then by the points they cost.

    Within a group the diagnosed case stands first, else the plainest: a public one, without anything
    that the grader does by itself and without odd settings, short.
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
        Group(outcomes=tuple(sorted(members, key=place)), lost=sum(lost.get(one.case, 0) for one in members))
        for members in by_cause.values()
    ]
    return sorted(groups, key=lambda group: (group.shown.case != diagnosed, -group.lost, -len(group.outcomes)))


def lost_points(record: Record) -> dict[str, float]:
    """What each case cost, about: the points a rule lost, shared out over the cases that lost them."""
    lost: dict[str, float] = {}
    for score in record.rules:
        missing = score.max_points - score.points
        guilty = guilty_of(record, score.rule) if missing else []
        weight = sum(one.weight for one in guilty)
        for one in guilty:
            lost[one.case] = lost.get(one.case, 0) + missing * one.weight / weight
    return lost


def guilty_of(record: Record, rule: str) -> list[Outcome]:
    """The cases that lost points of a rule.

    A rule that no case names is judged in all of them; those with a finding of it lost its points.
    """
    own = [one for one in record.outcomes if one.rule == rule]
    if own:
        return [one for one in own if not one.passed]
    judged = next((score.judged for score in record.rules if score.rule == rule), Judged.CASES)
    return [one for one in record.outcomes if any(_costs(found, rule, judged) for found in findings_of(record, one))]


def hidden_losses(record: Record, audience: Audience) -> list[HiddenLoss]:
    """For each rule that lost points by hidden cases, those cases."""
    losses = []
    for score in record.rules:
        missing = score.max_points - score.points
        guilty = guilty_of(record, score.rule) if missing else []
        hidden = tuple(one for one in guilty if is_hidden(one, audience))
        if hidden:
            share = sum(one.weight for one in hidden) / sum(one.weight for one in guilty)
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
    """What a case tests, each with its place in the handout: `Task 2: create_sequence returns NULL when ...`."""
    places = [name.partition("/")[0] for name in outcome.handout]
    return [f"{place}: {said}" for place, said in zip(places, outcome.clauses, strict=False)] or list(outcome.handout)


def of_the_build(record: Record) -> list[Finding]:
    """What is wrong before any case is run."""
    return [finding for finding in record.findings if finding.case is None]


def findings_of(record: Record, outcome: Outcome) -> list[Finding]:
    """What was found in one case."""
    return [record.findings[place] for place in outcome.findings]


def trouble_of(record: Record, outcome: Outcome) -> Finding | None:
    """The finding behind the first thing that went wrong in a case, None when there is none."""
    found = findings_of(record, outcome)
    difference = outcome.difference
    if difference is not None:
        same = [one for one in found if (one.operation, one.field) == (difference.operation, difference.field)]
        return same[0] if same else None
    return min(found, key=lambda one: one.operation or 0, default=None)


def bad_operation(record: Record, outcome: Outcome) -> int:
    """The operation, counted from 1, at which a case went wrong first; 0 where nothing says which."""
    if outcome.difference is not None:
        return outcome.difference.operation
    trouble = trouble_of(record, outcome)
    return (trouble.operation if trouble is not None else None) or 0


def hint_of(record: Record, group: Group) -> str:
    """The group's hint, but not the one that the report begins with."""
    first = record.diagnosis.hint if record.diagnosis is not None else ""
    return "" if group.shown.hint == first else group.shown.hint


def broken_by(record: Record, group: Group) -> str:
    """The sentence of the handout that the group breaks, but not the one that the report begins with."""
    return group.shown.broken if hint_of(record, group) else ""


def _costs(found: Finding, rule: str, judged: Judged) -> bool:
    """Did this finding cost points of a rule that no case names?"""
    return found.verdict in _EVERYWHERE[judged] if judged in _EVERYWHERE else found.rule == rule


def _length(outcome: Outcome) -> int:
    return outcome.steps[-1].number if outcome.steps else 0
