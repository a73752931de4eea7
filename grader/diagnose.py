"""From what was seen to what is broken: findings, and the most likely rule.

A case's cause is among the symptoms of its first bad operation; what follows is mostly a consequence. The lab's table
of clues names the rule for each; the rule that explains most cases is the diagnosis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from grader.compare import Comparison, End
from grader.lab import SEVERAL_TARGETS, Clue, Lab
from grader.memcheck import Checked
from grader.rubric import Judged
from grader.symptom import Lines, Symptom, finding_of
from grader.symptoms import symptoms
from grader.verdict import Diagnosis, Finding, Tool, Verdict, Visibility
from reference.model import SHARED_MEMORY
from reference.operation import Operation

__all__ = ["BREACH", "CaseFindings", "Diagnosed", "case_findings", "diagnose"]

BREACH = "breach"
"""Kind of a finding: a line that leaves shared memory wrong, beside the cause of the case."""

_CLEANUP_VOTE = 0.05
"""Every case ends with a clean-up, so a defect that shows there shows everywhere; what shows earlier tells more."""


@dataclass(slots=True)
class CaseFindings:
    """What one case showed: its symptoms at every operation, first ones first, and the findings to report."""

    comparison: Comparison
    symptoms: list[Symptom] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    leaks: bool = False
    memory_errors: bool = False
    clue: Clue | None = None
    cause: Symptom | None = None
    hint: str = ""

    def first(self) -> list[Symptom]:
        """The symptoms of the first bad operation."""
        least = min((symptom.operation for symptom in self.symptoms), default=-1)
        return [symptom for symptom in self.symptoms if symptom.operation == least]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosed:
    """The diagnosis of a submission, with the verdict that it carries."""

    diagnosis: Diagnosis | None
    verdict: Verdict


def case_findings(
    comparisons: Sequence[Comparison], lines: Lines, checked: Checked | None, lab: Lab
) -> list[CaseFindings]:
    """Gather symptoms and findings case by case, and name the rule behind each by the lab's clues."""
    found = [
        CaseFindings(comparison, own)
        for comparison, own in zip(comparisons, symptoms(comparisons, lines, checked), strict=True)
    ]
    for number, one in enumerate(found):
        one.memory_errors |= checked is not None and number in checked.shunned
        one.leaks |= any(symptom.verdict is Verdict.MEMORY_LEAK for symptom in one.symptoms)
        one.memory_errors |= any(_is_memory_error(symptom) for symptom in one.symptoms)
        one.cause, one.clue = _best_clue(one, lab.clues)
    _prefer_simple(found, lab.clues)
    for one in found:
        _name_line(one, lab.clues)
        if one.clue is not None and one.cause is not None:
            one.hint = _hint(one.clue, one.cause, one.comparison, lab)
        one.findings = list(_findings(one, lab))
    return found


def diagnose(found: Sequence[CaseFindings], lab: Lab) -> Diagnosed:
    """Name the rule that explains most of the cases that went wrong."""
    sick = [one for one in found if one.clue is not None and one.cause is not None]
    sick = [one for one in sick if one.comparison.end is not End.NO_TIME] or sick  # those only follow from others
    if not sick:
        return Diagnosed(diagnosis=None, verdict=Verdict.ACCEPTED)
    votes: dict[str, float] = {}
    for one in sick:
        assert one.clue is not None
        votes[one.clue.rule] = votes.get(one.clue.rule, 0) + (_CLEANUP_VOTE if _shows_anyway(one) else 1)
    ranked = sorted(votes, key=lambda rule: -votes[rule])
    chosen = _most_common_verdict([one for one in sick if one.clue is not None and one.clue.rule == ranked[0]])
    shortest = min(chosen, key=lambda one: _difficulty(one, ranked[0]))
    clue, cause = shortest.clue, shortest.cause
    assert clue is not None
    assert cause is not None
    return Diagnosed(diagnosis=_diagnosis(shortest, clue, cause, lab, also=tuple(ranked[1:])), verdict=cause.verdict)


def _shows_anyway(one: CaseFindings) -> bool:
    """Would nearly every case show it, whatever it asks? What shows in the clean-up, and memory lost before it."""
    last = len(one.comparison.case.trace.operations) - 1
    leaks = one.cause is not None and one.cause.verdict is Verdict.MEMORY_LEAK
    return _only_in_cleanup(one) or (leaks and one.comparison.is_cleanup(last))


def _only_in_cleanup(one: CaseFindings) -> bool:
    """Went all well until the clean-up that the grader added?"""
    return one.cause is not None and one.comparison.is_cleanup(one.cause.operation)


def _most_common_verdict(found: list[CaseFindings]) -> list[CaseFindings]:
    """Those cases whose verdict most of them have; what shows before the clean-up says more than what shows there.

    A wrong state goes before what follows from it.
    """
    by_verdict: dict[Verdict, list[CaseFindings]] = {}
    for one in [one for one in found if not _only_in_cleanup(one)] or found:
        if one.cause is not None:
            by_verdict.setdefault(one.cause.verdict, []).append(one)
    return by_verdict.get(Verdict.WRONG_ANSWER) or max(by_verdict.values(), key=len)


def _difficulty(one: CaseFindings, rule: str) -> tuple[bool, bool, int, int]:
    """Which case to show: one that students may see, about this rule, short, and with little state."""
    comparison = one.comparison
    state = sum(step.length for step in comparison.played.steps[:1])
    case = comparison.case
    return case.visibility is Visibility.HIDDEN, case.rule != rule, len(case.trace.operations), state


def _diagnosis(one: CaseFindings, clue: Clue, cause: Symptom, lab: Lab, *, also: tuple[str, ...]) -> Diagnosis:
    case = one.comparison.case
    operation = case.trace.operations[min(cause.operation, len(case.trace.operations) - 1)]
    return Diagnosis(
        rule=clue.rule,
        handout=lab.rubric.rule(clue.rule).handout,
        case=case.name,
        operation=cause.operation + 1,
        line=operation.line,
        source_line=cause.source[0] if cause.source else None,
        summary=_summary(operation, cause),
        hint=one.hint,
        also=also,
    )


def _summary(operation: Operation, cause: Symptom) -> str:
    difference = cause.difference
    said = cause.finding.message if cause.finding is not None else difference.seen if difference is not None else ""
    call = "" if said.startswith(f"{operation.name} ") else f"{operation.name} at "
    return f"{call}operation {cause.operation + 1}: {said}"


def _hint(clue: Clue, cause: Symptom, comparison: Comparison, lab: Lab) -> str:
    operation = comparison.case.trace.operations[min(cause.operation, len(comparison.case.trace.operations) - 1)]
    reply = comparison.expected[min(cause.operation, len(comparison.expected) - 1)]
    difference = cause.difference
    return clue.hint.format(
        call=operation.name,
        field=difference.field if difference else "",
        expected=difference.expected if difference else "",
        actual=difference.actual if difference else "",
        wanted=difference.wanted if difference else "",
        refusal=next(iter(lab.grammar.operations[operation.name].replies[-1:]), ""),
        line=str(cause.source[0]) if cause.source else lab.source_name,
        clause=lab.grammar.clauses.get(reply.clause, ""),
    )


def _best_clue(one: CaseFindings, clues: Sequence[Clue]) -> tuple[Symptom | None, Clue | None]:
    """The first clue of the table that fits a symptom of the first bad operation."""
    first = one.first()
    for clue in clues:
        for symptom in first:
            if _fits(clue, symptom, one.comparison):
                return symptom, clue
    return (first[0], None) if first else (None, None)


def _prefer_simple(found: Sequence[CaseFindings], clues: Sequence[Clue]) -> None:
    """A mistake that shows with one engine alone is no mix-up of engines, also where there are several."""
    several = frozenset({SEVERAL_TARGETS})
    plain = [clue for clue in clues if not clue.circumstances & several]
    simple = {(one.clue, _call(one)) for one in found if one.clue is not None and one.clue in plain}
    for one in found:
        if one.clue is not None and one.clue.circumstances & several:
            cause, clue = _best_clue(one, plain)
            if (clue, _call(one)) in simple:
                one.cause, one.clue = cause, clue


def _call(one: CaseFindings) -> str:
    return _operation(one).name if one.cause is not None else ""


def _fits(clue: Clue, symptom: Symptom, comparison: Comparison) -> bool:
    """Does every condition of the clue hold?"""
    operations = comparison.case.trace.operations
    index = min(symptom.operation, len(operations) - 1)
    difference = symptom.difference
    return (
        (not clue.calls or operations[index].name in clue.calls)
        and (not clue.kinds or symptom.kind in clue.kinds)
        and (not clue.facets or (difference is not None and difference.facet in clue.facets))
        and (not clue.field or (difference is not None and clue.field in difference.field))
        and clue.tags <= (difference.tags if difference is not None else frozenset())
        and clue.circumstances <= _circumstances(symptom, comparison, index)
        and (clue.where is None or (symptom.judgement is not None and clue.where(symptom.judgement)))
    )


def _circumstances(symptom: Symptom, comparison: Comparison, index: int) -> frozenset[str]:
    reply = symptom.judgement.expected if symptom.judgement else comparison.expected[index]
    targets = {operation.target for operation in comparison.case.trace.operations} - {None}
    several = len(targets) > 1 or _made_anew(comparison, index)
    return reply.circumstances | ({SEVERAL_TARGETS} if several else frozenset())


def _made_anew(comparison: Comparison, index: int) -> bool:
    """Is it not the first engine (or whatever a lab has) of its number? The first call to a number makes one."""
    operations = comparison.case.trace.operations[: index + 1]
    accepted = [
        operation.name
        for operation, reply in zip(operations, comparison.expected, strict=False)
        if operation.target == operations[-1].target and not reply.refused
    ]
    return accepted.count(accepted[0]) > 1 if accepted else False


def _is_memory_error(symptom: Symptom) -> bool:
    return symptom.verdict in (Verdict.MEMORY_ERROR, Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED)


def _findings(one: CaseFindings, lab: Lab) -> Iterator[Finding]:
    """What goes into the record: the first difference, and everything about memory, each with its rule."""
    rule = one.clue.rule if one.clue is not None else one.comparison.case.rule
    if one.cause is not None and one.cause.difference is not None:
        difference = one.cause.difference
        yield Finding(
            rule=rule,
            verdict=Verdict.WRONG_ANSWER,
            kind=difference.facet,
            case=one.comparison.case.name,
            operation=one.cause.operation + 1,
            field=difference.field,
            expected=difference.expected,
            actual=difference.actual,
            message=one.hint,
            source=one.cause.source,
        )
        yield from _breach(one, lab)
    for symptom in one.symptoms:
        if symptom.finding is not None:
            judged = Judged.LEAK if symptom.verdict is Verdict.MEMORY_LEAK else Judged.MEMORY_ERROR
            yield replace(symptom.finding, rule=rule if symptom is one.cause else lab.rubric.judged(judged))


def _name_line(one: CaseFindings, clues: Sequence[Clue]) -> None:
    """The line of a store that breaks the same rule in the same operation is the line of the cause too."""
    cause, named = one.cause, _named(one)
    if cause is not None and named is not None and cause.difference is not None and not cause.culprits:
        clue = _clue_of(named, one.comparison, clues)
        if clue is not None and one.clue is not None and clue.rule == one.clue.rule:
            one.cause = replace(cause, culprits=named.culprits)


def _named(one: CaseFindings) -> Symptom | None:
    """The first difference of the first bad operation whose line is known."""
    return next((symptom for symptom in one.first() if symptom.culprits), None)


def _clue_of(symptom: Symptom, comparison: Comparison, clues: Sequence[Clue]) -> Clue | None:
    """The clue for one symptom alone; that there are several targets explains no line."""
    plain = (clue for clue in clues if SEVERAL_TARGETS not in clue.circumstances)
    return next((clue for clue in plain if _fits(clue, symptom, comparison)), None)


def _breach(one: CaseFindings, lab: Lab) -> Iterator[Finding]:
    """A difference beside the cause whose line is known, with the rule that it breaks itself."""
    named = _named(one)
    if named is None or named.difference is None or SHARED_MEMORY not in named.difference.tags:
        return
    if one.cause is None or one.cause.culprits:
        return
    clue = _clue_of(named, one.comparison, lab.clues)
    finding = finding_of(
        one.comparison,
        named.operation,
        verdict=Verdict.WRONG_ANSWER,
        kind=BREACH,
        message=f"by this line {_call(one)} leaves memory in a wrong state",
        source=named.culprits,
    )
    yield replace(finding, rule=clue.rule if clue is not None else one.comparison.case.rule, tool=Tool.VALGRIND)


def _operation(one: CaseFindings) -> Operation:
    assert one.cause is not None
    operations = one.comparison.case.trace.operations
    return operations[min(one.cause.operation, len(operations) - 1)]
