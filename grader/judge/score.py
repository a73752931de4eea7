"""Compute points from cases (design: rules and points); one defect costs what it is worth, not everything.

A crash is no leak, and a case that did not run to its end shows no leak: a submission loses no points of `leak` for
what was not observed. A program that does nothing does not earn those points either, because they are limited to the
share that the other rules earned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from grader.core.case import Case
from grader.core.rubric import Rubric, Rule
from grader.core.verdict import Judged, RuleScore
from grader.judge.case_findings import CaseFindings
from grader.runtime.comparison import Comparison, End

_NOTHING: Mapping[str, int] = {}
HAS_FINDING: Mapping[Judged, Callable[[CaseFindings], bool]] = {
    Judged.LEAK: lambda findings: findings.leaks,
    Judged.MEMORY_ERROR: lambda findings: findings.memory_errors,
}
"""For what is judged in every case: whether the case has such a finding."""


def passes(findings: CaseFindings, rule: Rule) -> bool:
    """Whether the case passes for its rule: its facets are right, and everything that must be accepted was accepted.

    A case that an earlier call stopped passes too if what follows is right (grader.judge.resume).
    """
    return findings.resumed or _passes_whole(findings, rule)


def _passes_whole(findings: CaseFindings, rule: Rule) -> bool:
    return _accepts(findings.comparison, rule) and _ran(findings.comparison, rule) and not findings.facets(rule)


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
    here: they count as not passed and can earn nothing, so the earned points are certain.

    A rule that is judged in every case earns no greater share than the other rules did (see grader.core.rubric).
    The build's points are earned only together with some other point. A defect that was seen, but that no case of its
    rule caught, costs one point of the rule that was `diagnosed`: full marks are for programs without a defect. A rule
    of which no case was chosen (`--case`) can neither earn nor lose points.
    """
    elsewhere = hidden or _NOTHING
    scores = {
        rule.id: _score(rule, case_findings, cases, elsewhere.get(rule.id, 0))
        for rule in rubric.rules
        if rule.judged is not Judged.BUILD
    }
    others = [rule for rule in rubric.rules if rule.judged is Judged.CASES]
    whole = sum(rule.points for rule in others if _is_judged(rule, cases, elsewhere))
    earned, most = (sum(getattr(scores[rule.id], name) for rule in others) for name in ("points", "max_points"))
    for rule in rubric.rules:
        if rule.judged in HAS_FINDING:
            scores[rule.id] = _capped(scores[rule.id], _cap(rule, earned, whole), _cap(rule, most, whole))
    earned = any(score.points for score in scores.values())
    for rule in rubric.rules:
        if rule.judged is Judged.BUILD:
            passed = int(builds and earned)
            scores[rule.id] = _rule_score(rule, (rule.points * passed, rule.points), 1, passed)
    if diagnosed is not None and all(score.points == score.max_points for score in scores.values()):
        payer = diagnosed if scores[diagnosed].points else max(scores, key=lambda rule: scores[rule].points)
        scores[payer] = replace(scores[payer], points=max(0, scores[payer].points - 1))
    return tuple(scores[rule.id] for rule in rubric.rules)


def total(scores: Sequence[RuleScore]) -> int:
    """The score of a submission."""
    return sum(score.points for score in scores)


def most_points(rubric: Rubric, cases: Sequence[Case], hidden: Mapping[str, int] | None = None) -> int:
    """The points that all rules together can earn with these cases; `hidden` is the weight of cases not run here."""
    elsewhere = hidden or _NOTHING
    alone = {
        rule.id: _share(rule, own, own, 0 if rule.judged is Judged.BUILD else elsewhere.get(rule.id, 0))[1]
        for rule in rubric.rules
        for own in [_own_weight(rule, cases)]
    }
    others = [rule for rule in rubric.rules if rule.judged is Judged.CASES]
    whole = sum(rule.points for rule in others if _is_judged(rule, cases, elsewhere))
    most = sum(alone[rule.id] for rule in others)
    caps = {rule.id: _cap(rule, most, whole) for rule in rubric.rules if rule.judged in HAS_FINDING}
    return sum(min(points, caps.get(rule, points)) for rule, points in alone.items())


def _own_weight(rule: Rule, cases: Sequence[Case]) -> int:
    return len(cases) if rule.judged is not Judged.CASES else sum(case.weight for case in cases if case.rule == rule.id)


def _is_judged(rule: Rule, cases: Sequence[Case], elsewhere: Mapping[str, int]) -> bool:
    """Whether the rule has a case at all, here or elsewhere."""
    return _own_weight(rule, cases) + elsewhere.get(rule.id, 0) > 0


def _cap(rule: Rule, earned: int, whole: int) -> int:
    """This rule's points times the share of the other rules' points that was earned, rounded up."""
    return -(-rule.points * earned // whole) if whole else 0


def _capped(score: RuleScore, cap: int, most: int) -> RuleScore:
    """Limit the points to `cap` and the maximum to `most`; a case with a finding still costs one of the points."""
    most = min(score.max_points, most)
    points = score.points if score.passed == score.cases else max(0, min(score.points, most - 1))
    return replace(score, points=min(points, cap), max_points=most, withheld=max(0, min(points, most) - cap))


def _accepts(comparison: Comparison, rule: Rule) -> bool:
    """Whether everything that must be accepted was accepted; a refused clean-up costs only the rules about it."""
    at = comparison.refused
    return at is None or (comparison.is_cleanup(at) and not rule.covers_cleanup)


def _ran(comparison: Comparison, rule: Rule) -> bool:
    """Whether the case reached its end; a crash in the clean-up that the grader added costs only the rules about it."""
    if comparison.end is End.REACHED:
        return True
    cleaning = comparison.is_cleanup(comparison.ended_at)
    return cleaning and comparison.end is not End.MISFIT and not rule.covers_cleanup


def _score(rule: Rule, case_findings: Sequence[CaseFindings], cases: Sequence[Case], elsewhere: int) -> RuleScore:
    if rule.judged is not Judged.CASES:
        clean = sum(not HAS_FINDING[rule.judged](findings) for findings in case_findings)
        return _rule_score(rule, _share(rule, clean, len(cases), elsewhere), len(cases), clean)
    own = [case for case in cases if case.rule == rule.id]
    right = [
        findings.comparison.case
        for findings in case_findings
        if findings.comparison.case.rule == rule.id and passes(findings, rule)
    ]
    if all(
        case.seed is not None for case in right
    ):  # a random trace may pass here only because it failed for another rule
        right = []
    weight, earned = (sum(case.weight for case in some) for some in (own, right))
    return _rule_score(rule, _share(rule, earned, weight, elsewhere), len(own), len(right))


def _share(rule: Rule, earned: int, weight: int, elsewhere: int) -> tuple[int, int]:
    """The points of a rule and its maximum, when cases of the weight `earned` passed out of `weight`.

    Both are rounded down. With cases elsewhere the rounding could hide a failing case, so a failing case costs at
    least one point.
    """
    most, points = (rule.points * part // max(1, weight + elsewhere) for part in (weight, earned))
    return points if earned == weight else max(0, min(points, most - 1)), most


def _rule_score(rule: Rule, share: tuple[int, int], cases: int, passed: int) -> RuleScore:
    return RuleScore(
        rule=rule.id,
        title=rule.title,
        handout=rule.handout,
        points=share[0],
        max_points=share[1],
        cases=cases,
        passed=passed,
        judged=rule.judged,
    )
