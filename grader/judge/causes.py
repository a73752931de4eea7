"""Decide why a submission fails: its causes, the case that shows each cause, and the most likely cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from grader.assignment.lab import Lab
from grader.core.judgement import Difference
from grader.core.verdict import CallStage, Cause, RuleScore, Stage, Verdict, Visibility
from grader.judge.case_findings import CaseFindings
from grader.judge.mistakes import operation_of
from grader.judge.score import HAS_FINDING, passes
from grader.runtime.protocol import End

_TELLING_VOTE = 2
"""The vote of a difference with a note: a note on what was confused is better evidence than the wrong value alone."""

_CLEANUP_VOTE = 0.05
"""The vote of a failure in the clean-up: every case ends with a clean-up and shows it. Earlier failures say more."""


def diagnose(cases: Sequence[CaseFindings], by_call: Sequence[CallStage], lab: Lab) -> tuple[Cause, ...]:
    """Return the causes of the failing cases, the most likely one first (`_most_likely`).

    The first case of each cause is the one to show (`_display_order`): a public one if one failed. What a cause costs
    is unknown until the points are counted.
    """
    groups: dict[str, list[CaseFindings]] = {}
    for case in cases:
        if case.cause is not None or not passes(case, lab.rubric.rule(case.comparison.case.rule)):
            groups.setdefault(case.group or case.comparison.case.name, []).append(case)
    explained = [case for case in cases if case.cause is not None]
    first = _most_likely(explained, by_call, lab) if explained else None
    for members in groups.values():
        members.sort(key=lambda case: (case is not first, *_display_order(case, case.rule, lab)))
    return tuple(map(_cause, sorted(groups.values(), key=lambda members: members[0] is not first)))


def search_order(causes: Sequence[Cause], cases: Sequence[CaseFindings]) -> list[int]:
    """Return the numbers of the failing cases in the order in which their lines are searched for.

    The first public case of each cause comes first, then the second of each, and so on; then the hidden cases.
    """
    numbers = {case.comparison.case.name: number for number, case in enumerate(cases)}
    ranked = [(rank, numbers[name]) for cause in causes for rank, name in enumerate(cause.cases)]
    in_turn = sorted(ranked, key=lambda entry: (_is_hidden(cases[entry[1]]), entry[0]))
    return [number for _, number in in_turn]


def _cause(members: Sequence[CaseFindings]) -> Cause:
    """Return the cause of these cases, described by the first of them."""
    shown = members[0]
    case, cause, cases = shown.comparison.case, shown.cause, tuple(member.comparison.case.name for member in members)
    if cause is None:
        return Cause(rule=case.rule, verdict=Verdict.WRONG_ANSWER, sentence=case.title, cases=cases)
    return Cause(
        rule=shown.rule,
        verdict=cause.verdict,
        sentence=cause.seen,
        clause=shown.broken,
        hint=shown.hint,
        lines=cause.lines,
        cases=cases,
        call=shown.call,
        operation=cause.operation + 1,
    )


def charged(causes: Sequence[Cause], cases: Sequence[CaseFindings], scores: Sequence[RuleScore]) -> Iterator[Cause]:
    """Yield the causes, each with a rule that lost points.

    A mistake names the broken rule, but possibly only cases of other rules failed. Then a wrong answer gets the rule
    that most of its cases belong to, and a leak or a memory error the rule about such findings.
    """
    spared = {score.rule for score in scores if score.points == score.max_points > 0}
    losing = {score.rule: score.judged for score in scores if score.points < score.max_points}
    by_name = {case.comparison.case.name: case for case in cases}
    for cause in causes:
        own_cases = [by_name[name] for name in cause.cases]
        rules = Counter(case.comparison.case.rule for case in own_cases if not case.resumed)
        by_case = [rule for rule, _ in rules.most_common() if rule in losing]
        by_finding = [
            rule
            for rule, judged in losing.items()
            if judged in HAS_FINDING and any(map(HAS_FINDING[judged], own_cases))
        ]
        others = by_case + by_finding if cause.verdict is Verdict.WRONG_ANSWER else by_finding + by_case
        yield replace(cause, rule=others[0]) if cause.rule in spared and others else cause


def _most_likely(explained: list[CaseFindings], by_call: Sequence[CallStage], lab: Lab) -> CaseFindings:
    """Find the rule that most failing cases break (`_vote`), and return the case to show for this rule.

    For an unfinished file only the failures of one call count (`_of_the_next_call`).
    """
    failing = [
        case for case in explained if case.comparison.end is not End.NO_TIME
    ] or explained  # a lack of time only follows from other cases
    failing = _of_the_next_call(failing, by_call)
    rules = _rules_of_groups(failing)
    votes: dict[str, float] = {}
    for case in failing:
        votes[_rule_of(case, rules)] = votes.get(_rule_of(case, rules), 0) + _vote(case)
    ranked = sorted(votes, key=lambda rule: -votes[rule])
    public = {_rule_of(case, rules) for case in failing if not _is_hidden(case)}
    rule = next((rule for rule in ranked if rule in public), ranked[0])
    own = [case for case in failing if _rule_of(case, rules) == rule]
    candidates = _largest_group(_most_common_verdict([case for case in own if not _is_hidden(case)] or own))
    return min(candidates, key=lambda case: _display_order(case, rule, lab))


def _of_the_next_call(failing: list[CaseFindings], by_call: Sequence[CallStage]) -> list[CaseFindings]:
    """Return the public failures of one call of an unfinished file: the first call in work, else the first not written.

    Return all failures if every call is written, or if no public case fails in a call of `by_call`.
    """
    if all(call.stage is not Stage.NOT_YET for call in by_call):
        return failing
    failures: dict[str, list[CaseFindings]] = {}
    for case in failing:
        if not _is_hidden(case):
            failures.setdefault(case.call, []).append(case)
    in_turn = sorted(by_call, key=lambda call: call.stage is Stage.NOT_YET)
    return next((failures[call.call] for call in in_turn if call.call in failures), failing)


def _rules_of_groups(failing: Sequence[CaseFindings]) -> dict[str, str]:
    """Map each group to the rule that its cases break most often, because one faulty line may break several rules.

    The line of a leak is where the memory was obtained, not where it was lost, so leaks keep their own rule (see
    `_rule_of`).
    """
    counted: dict[str, Counter[str]] = {}
    for case in failing:
        counted.setdefault(case.group, Counter())[case.rule] += 1
    return {group: rules.most_common(1)[0][0] for group, rules in counted.items()}


def _rule_of(case: CaseFindings, rules: Mapping[str, str]) -> str:
    leaks = case.cause is not None and case.cause.verdict is Verdict.MEMORY_LEAK
    return case.rule if leaks else rules[case.group]


def _vote(case: CaseFindings) -> float:
    if _shows_anyway(case):
        return _CLEANUP_VOTE
    return _TELLING_VOTE if isinstance(case.cause, Difference) and case.cause.note else 1


def _largest_group(cases: Sequence[CaseFindings]) -> list[CaseFindings]:
    votes: dict[str, float] = {}
    for case in cases:
        votes[case.group] = votes.get(case.group, 0) + _vote(case)
    most = max(votes, key=lambda group: votes[group])
    return [case for case in cases if case.group == most]


def _is_hidden(case: CaseFindings) -> bool:
    return case.comparison.case.visibility is Visibility.HIDDEN


def _shows_anyway(case: CaseFindings) -> bool:
    """Whether nearly every case would show the failure: a failing clean-up, or a leak in a case with a clean-up."""
    last = len(case.comparison.case.trace.operations) - 1
    leaks = case.cause is not None and case.cause.verdict is Verdict.MEMORY_LEAK
    return _only_in_cleanup(case) or (leaks and case.comparison.is_cleanup(last))


def _only_in_cleanup(case: CaseFindings) -> bool:
    """Whether nothing failed before the clean-up that the grader added."""
    return case.cause is not None and case.comparison.is_cleanup(case.cause.operation)


def _most_common_verdict(cases: list[CaseFindings]) -> list[CaseFindings]:
    """Return the cases with a wrong answer if there are any, otherwise those with the most common verdict.

    Other verdicts are often consequences of a wrong state. Cases that fail only in the clean-up are used only if there
    are no others, because they say less.
    """
    by_verdict: dict[Verdict, list[CaseFindings]] = {}
    for case in [case for case in cases if not _only_in_cleanup(case)] or cases:
        if case.cause is not None:
            by_verdict.setdefault(case.cause.verdict, []).append(case)
    return by_verdict.get(Verdict.WRONG_ANSWER) or max(by_verdict.values(), key=len)


def _display_order(case: CaseFindings, rule: str, lab: Lab) -> tuple[int, ...]:
    """Return the sort key by which the case to show is chosen.

    Preferred are cases that are public, fail in a call of the case file, are plain, are about this rule and call (by
    the name of their folder), are short, and have little state. Failures of a call that closes everything come late,
    because such a call often repeats the work of other calls and shows their failures again.
    """
    comparison, cause = case.comparison, case.cause
    operations = comparison.case.trace.operations
    operation = operation_of(cause, comparison) if cause is not None else operations[-1]
    closes = lab.grammar.operations[operation.name].closes
    return (
        _is_hidden(case),
        operation.implicit and not closes,
        not case.plain,
        closes,
        comparison.case.rule != rule,
        comparison.case.name.partition("/")[0] not in operation.name,
        len(operations),
        sum(len(step.record) for step in comparison.played.steps[:1]),
    )
