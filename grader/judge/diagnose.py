"""Find the most likely broken rule: the rule that explains most of the failing cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grader.assignment.lab import Clue, Lab
from grader.core.verdict import CallStage, Diagnosis, Stage, Verdict, Visibility
from grader.judge.causes import CaseFindings
from grader.judge.evidence import Evidence
from grader.judge.mistakes import operation_of
from grader.runtime.comparison import End
from reference.operation import Operation

_TELLING_VOTE = 2
"""The vote of a difference with a note: what was confused with what is better evidence than the result alone."""

_CLEANUP_VOTE = 0.05
"""The vote of a failure in the clean-up: every case ends with one, so each would show it. Earlier failures say more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """The diagnosis of a submission, and its verdict."""

    diagnosis: Diagnosis | None
    verdict: Verdict
    stages: tuple[CallStage, ...] = ()
    """The stage of each call, when something went wrong."""


def diagnose(cases: Sequence[CaseFindings], by_call: tuple[CallStage, ...], lab: Lab) -> Diagnosed:
    """Name the rule that explains most of the failing cases, and show it by a public case where one failed.

    For an unfinished file only the first call that is in work is diagnosed, and the rest is ignored.
    """
    failing = [case for case in cases if case.clue is not None and case.cause is not None]
    failing = [
        case for case in failing if case.comparison.end is not End.NO_TIME
    ] or failing  # a lack of time only follows from other cases
    if not failing:
        return Diagnosed(diagnosis=None, verdict=Verdict.ACCEPTED)
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
    shown = min(candidates, key=lambda case: _difficulty(case, rule, lab))
    clue, cause = shown.clue, shown.cause
    assert clue is not None
    assert cause is not None
    also = tuple(other for other in ranked if other not in (rule, clue.rule))
    diagnosis = _diagnosis(shown, clue, cause, lab, also=also)
    return Diagnosed(diagnosis=diagnosis, verdict=cause.verdict, stages=by_call)


def _of_the_next_call(failing: list[CaseFindings], by_call: Sequence[CallStage]) -> list[CaseFindings]:
    """Limit an unfinished file to the failures of one call: the first one in work, else the first one not yet written.

    Without a call that is not written yet, all failures are returned.
    """
    if all(call.stage is not Stage.NOT_YET for call in by_call):
        return failing
    failures: dict[str, list[CaseFindings]] = {}
    for case in failing:
        if case.cause is not None and not _is_hidden(case):
            failures.setdefault(operation_of(case.cause, case.comparison).name, []).append(case)
    in_turn = sorted(by_call, key=lambda call: call.stage is Stage.NOT_YET)
    return next((failures[call.call] for call in in_turn if call.call in failures), failing)


def _rules_of_groups(failing: Sequence[CaseFindings]) -> dict[str, str]:
    """Map each group to the rule that its cases break most often, because one faulting line costs points of several.

    The line that made what was lost is no faulting line: it is lost elsewhere, in each case for its own
    reason (see `_rule_of`).
    """
    counted: dict[str, Counter[str]] = {}
    for case in failing:
        assert case.clue is not None
        counted.setdefault(case.group, Counter())[case.clue.rule] += 1
    return {group: rules.most_common(1)[0][0] for group, rules in counted.items()}


def _rule_of(case: CaseFindings, rules: Mapping[str, str]) -> str:
    assert case.clue is not None
    leaks = case.cause is not None and case.cause.verdict is Verdict.MEMORY_LEAK
    return case.clue.rule if leaks else rules[case.group]


def _vote(case: CaseFindings) -> float:
    if _shows_anyway(case):
        return _CLEANUP_VOTE
    return _TELLING_VOTE if case.cause is not None and case.cause.difference and case.cause.difference.note else 1


def _largest_group(cases: Sequence[CaseFindings]) -> list[CaseFindings]:
    votes: dict[str, float] = {}
    for case in cases:
        votes[case.group] = votes.get(case.group, 0) + _vote(case)
    most = max(votes, key=lambda group: votes[group])
    return [case for case in cases if case.group == most]


def _is_hidden(case: CaseFindings) -> bool:
    return case.comparison.case.visibility is Visibility.HIDDEN


def _shows_anyway(case: CaseFindings) -> bool:
    """Whether nearly every case would show it: a failure in the clean-up, or memory that was lost before it."""
    last = len(case.comparison.case.trace.operations) - 1
    leaks = case.cause is not None and case.cause.verdict is Verdict.MEMORY_LEAK
    return _only_in_cleanup(case) or (leaks and case.comparison.is_cleanup(last))


def _only_in_cleanup(case: CaseFindings) -> bool:
    """Whether nothing failed before the clean-up that the grader added."""
    return case.cause is not None and case.comparison.is_cleanup(case.cause.operation)


def _most_common_verdict(cases: list[CaseFindings]) -> list[CaseFindings]:
    """Return the cases with the most common verdict, but those with a wrong answer if there are any.

    A failure before the clean-up says more than one in it. A wrong state comes before its consequences.
    """
    by_verdict: dict[Verdict, list[CaseFindings]] = {}
    for case in [case for case in cases if not _only_in_cleanup(case)] or cases:
        if case.cause is not None:
            by_verdict.setdefault(case.cause.verdict, []).append(case)
    return by_verdict.get(Verdict.WRONG_ANSWER) or max(by_verdict.values(), key=len)


def _difficulty(case: CaseFindings, rule: str, lab: Lab) -> tuple[int, ...]:
    """Sort key of the case to show: public, failing in its own call, plain, about this rule and this call (by its
    folder's name), short, and with little state.

    A call that closes everything comes late: it often does the same as other calls, so their failures show there again.
    """
    assert case.cause is not None
    operation = operation_of(case.cause, case.comparison)
    closes = lab.grammar.operations[operation.name].closes
    comparison = case.comparison
    state = sum(len(step.record) for step in comparison.played.steps[:1])
    return (
        _is_hidden(case),
        operation.implicit and not closes,
        not case.plain,
        closes,
        comparison.case.rule != rule,
        comparison.case.name.partition("/")[0] not in operation.name,
        len(comparison.case.trace.operations),
        state,
    )


def _diagnosis(shown: CaseFindings, clue: Clue, cause: Evidence, lab: Lab, *, also: tuple[str, ...]) -> Diagnosis:
    case = shown.comparison.case
    operation = case.trace.operations[min(cause.operation, len(case.trace.operations) - 1)]
    return Diagnosis(
        rule=clue.rule,
        handout=lab.rubric.rule(clue.rule).handout,
        case=case.name,
        operation=cause.operation + 1,
        line=operation.line,
        source_line=cause.source[0] if cause.source else None,
        summary=_summary(operation, cause),
        hint=shown.hint,
        broken=shown.broken,
        also=also,
    )


def _summary(operation: Operation, cause: Evidence) -> str:
    call = "" if cause.sentence.startswith(f"{operation.name} ") else f"{operation.name} at "
    return f"{call}operation {cause.operation + 1}: {cause.sentence}"
