"""Compute points from cases (cases/README.md, "Points"): one defect costs what it is worth, not everything.

A crash is not a leak, and a case that did not run to its end shows no leak: a submission loses no points of `leak` for
something that was not observed, unless the program itself prevented that (`Observations.unseen`). A program that does
nothing does not earn these points, because they are limited to the share that the other rules earned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from grader.core.case import Case
from grader.core.rubric import Rubric, Rule
from grader.core.verdict import Judged, RuleScore
from grader.judge.case_findings import CaseFindings
from grader.runtime.protocol import Comparison, End

HAS_FINDING: Mapping[Judged, Callable[[CaseFindings], bool]] = {
    Judged.LEAK: lambda findings: findings.leaks,
    Judged.MEMORY_ERROR: lambda findings: findings.memory_errors,
}
"""For each kind of rule that is judged in every case: whether a case has a finding of this kind."""


def passes(findings: CaseFindings, rule: Rule) -> bool:
    """Whether the case passes for its rule.

    The case passes if the rule's facets are right, every call that must be accepted was accepted, and the program did
    somewhere what the case is about (grader.judge.work). A case that a call stopped also passes if the later calls
    are right (grader.judge.resume). A case that is a failing random trace never passes.
    """
    return findings.resumed or (findings.comparison.case.seed is None and _passes_whole(findings, rule))


def _passes_whole(findings: CaseFindings, rule: Rule) -> bool:
    ran = _accepts(findings.comparison, rule) and _ran(findings.comparison, rule)
    return ran and not findings.never_shown and not findings.facets(rule)


def rule_scores(
    case_findings: Sequence[CaseFindings],
    rubric: Rubric,
    cases: Sequence[Case],
    *,
    builds: bool,
    diagnosed: str | None,
    hidden: Mapping[str, int] | None = None,
) -> tuple[RuleScore, ...]:
    """Return what each rule earned, in the rubric's order.

    `builds` says whether the build passed without a finding. `hidden` is the weight, by rule, of cases that are not run
    here: they count as not passed and can earn nothing, so the earned points are certain. `diagnosed` is the rule of
    the first cause.
    """
    elsewhere = hidden or {}
    counted = [
        replace(
            _counted(rule, case_findings, cases, builds=builds),
            elsewhere=0 if rule.judged is Judged.BUILD else elsewhere.get(rule.id, 0),
            breached=rule.id == diagnosed,
        )
        for rule in rubric.rules
    ]
    return rescored(counted, rubric)


def rescored(counted: Iterable[RuleScore], rubric: Rubric) -> tuple[RuleScore, ...]:
    """Compute each rule's score again, from the counts in `counted` and the points, titles and places of this rubric.

    This needs no cases, so the scores of a record can be computed again for other points. The rubric must
    have the same rules, each judged in the same way. The result is empty if nothing was counted.

    A rule that is judged in every case earns no greater share than the other rules did (see grader.core.rubric).
    The build's points are earned only together with some other point. The diagnosed rule loses a point even if none of
    its own cases caught the defect: a rule that a report names has lost points, and only programs without a defect get
    full marks. If `--case` selects no case of a rule, the rule can neither earn nor lose points.
    """
    by_rule = {score.rule: score for score in counted}
    if not by_rule:
        return ()
    scores = {rule.id: _score(rule, by_rule[rule.id]) for rule in rubric.rules if rule.judged is not Judged.BUILD}
    others = [rule for rule in rubric.rules if rule.judged is Judged.CASES]
    whole = sum(rule.points for rule in others if scores[rule.id].weight + scores[rule.id].elsewhere)
    earned, most = (sum(getattr(scores[rule.id], name) for rule in others) for name in ("points", "max_points"))
    for rule in rubric.rules:
        if rule.judged in HAS_FINDING:
            scores[rule.id] = _capped(scores[rule.id], _cap(rule, earned, whole), _cap(rule, most, whole))
    can_earn = any(score.max_points for score in scores.values())  # no if `--case` leaves a part of a hidden weight
    any_earned = not can_earn or any(score.points for score in scores.values())
    for rule in rubric.rules:
        if rule.judged is Judged.BUILD:
            score = _score(rule, by_rule[rule.id])
            scores[rule.id] = score if any_earned else replace(score, points=0, passed=0)
    diagnosed = next((score.rule for score in scores.values() if score.breached), None)
    if diagnosed is not None:
        named = scores[diagnosed]
        payer = named if named.points else max(scores.values(), key=lambda score: score.points)
        if named.points == named.max_points > 0 or all(score.points == score.max_points for score in scores.values()):
            scores[payer.rule] = replace(payer, points=max(0, payer.points - 1))
    return tuple(scores[rule.id] for rule in rubric.rules)


def lose_alike(first: Iterable[RuleScore], second: Iterable[RuleScore]) -> bool:
    """Whether the same rules lose points in both scorings, and the same rules have no points to lose.

    The causes of a record depend on nothing else in its points (`grader.judge.causes.charged`). Withheld points do not
    count as lost, because no finding cost them.
    """
    losers, others = (
        {score.rule: (score.points < score.max_points - score.withheld, score.max_points > 0) for score in scores}
        for scores in (first, second)
    )
    return losers == others


def total(scores: Sequence[RuleScore]) -> int:
    """Return the score of a submission: the sum of its rules' points."""
    return sum(score.points for score in scores)


def most_points(rubric: Rubric, cases: Sequence[Case], hidden: Mapping[str, int] | None = None) -> int:
    """Return the points that all rules can earn together with these cases; `hidden` as for `rule_scores`."""
    scores = rule_scores((), rubric, cases, builds=False, diagnosed=None, hidden=hidden)
    return sum(score.max_points for score in scores)


def _cap(rule: Rule, earned: int, whole: int) -> int:
    """Return the rule's points times `earned` / `whole` (the other rules' points), rounded up."""
    return -(-rule.points * earned // whole) if whole else 0


def _capped(score: RuleScore, cap: int, most: int) -> RuleScore:
    """Limit the points to `cap` and the maximum to `most`. A case with a finding still costs at least one point."""
    most = min(score.max_points, most)
    points = score.points if score.passed == score.cases else max(0, min(score.points, most - 1))
    return replace(score, points=min(points, cap), max_points=most, withheld=max(0, min(points, most) - cap))


def _accepts(comparison: Comparison, rule: Rule) -> bool:
    """Whether every call that must be accepted was accepted. A refused clean-up counts only if the rule covers it."""
    at = comparison.refused
    return at is None or (comparison.is_cleanup(at) and not rule.covers_cleanup)


def _ran(comparison: Comparison, rule: Rule) -> bool:
    """Whether the case reached its end. A crash in the added clean-up counts only if the rule covers it."""
    if comparison.end is End.REACHED:
        return True
    cleaning = comparison.is_cleanup(comparison.ended_at)
    return cleaning and comparison.end is not End.MISFIT and not rule.covers_cleanup


def _counted(rule: Rule, case_findings: Sequence[CaseFindings], cases: Sequence[Case], *, builds: bool) -> RuleScore:
    """Return the counts of a rule's cases; its points are not computed yet."""
    score = RuleScore(rule=rule.id, title="", handout="", points=0, max_points=0, cases=0, passed=0, judged=rule.judged)
    if rule.judged is Judged.BUILD:
        return replace(score, cases=1, passed=int(builds), weight=1, earned=int(builds))
    if rule.judged is not Judged.CASES:
        clean = sum(not HAS_FINDING[rule.judged](findings) for findings in case_findings)
        return replace(score, cases=len(cases), passed=clean, weight=len(cases), earned=clean)
    own = [case for case in cases if case.rule == rule.id]
    of_rule = [findings for findings in case_findings if findings.comparison.case.rule == rule.id]
    right = [findings.comparison.case for findings in of_rule if passes(findings, rule)]
    random = [findings.comparison.case for findings in of_rule if findings.comparison.case.seed is not None]
    weight, earned, lost = (sum(case.weight for case in some) for some in (own, right, random))
    return replace(score, cases=len(own) + len(random), passed=len(right), weight=weight, earned=max(0, earned - lost))


def _score(rule: Rule, counted: RuleScore) -> RuleScore:
    """Return the points of a rule, and the most that it can earn, by the share of its weight that passed.

    Both numbers are rounded down. If some of the rule's cases are run elsewhere, rounding could hide a failing case
    here. So a failing case costs at least one point.
    """
    weight = max(1, counted.weight + counted.elsewhere)
    most, points = (rule.points * part // weight for part in (counted.weight, counted.earned))
    if counted.earned != counted.weight:
        points = max(0, min(points, most - 1))
    passed = counted.earned if rule.judged is Judged.BUILD else counted.passed
    return replace(
        counted,
        title=rule.title,
        handout=rule.handout,
        points=points,
        max_points=most,
        passed=passed,
        withheld=0,
    )
