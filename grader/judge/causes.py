"""The evidence of each case and its cause: the clue that fits, the line, and the sentence that was broken.

A case's cause is among the evidence of its first bad operation; what comes later is mostly a consequence. The lab's
table of clues names the rule for each cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from grader.assignment.lab import ONLY, SEVERAL_TARGETS, STORED, Clue, Lab
from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.core.rubric import Rule
from grader.core.symptom import Symptom
from grader.core.verdict import CallStage, Finding, Judged, Stage, Verdict
from grader.judge.correlate import Patterns, calls_of
from grader.judge.evidence import Evidence, evidence, finding_of
from grader.judge.mistakes import ClueTable, best_clue, clue_alone, hint, is_memory_error, operation_of, sentence
from grader.judge.progress import stages
from grader.runtime.comparison import Comparison
from grader.runtime.protocol import Observations, Unplaced
from grader.runtime.source_lines import Named, Place
from reference.operation import Trace

__all__ = ["BREACH", "CaseFindings", "case_findings", "unplaced"]

_MEMORY, _LEAK = "memory at ", "leak at "
"""Prefixes of the names of groups whose cases share a line."""

BREACH = "breach"
"""Kind of a finding: a line that an instrument saw leaving something wrong, in addition to the cause of the case."""


_NOT_YET = (
    "{call} has not done in any case what it was asked to. If it is not written yet, write it next; "
    "if it is, look which of its checks is always true."
)
"""The hint for such a call. Missing code breaks no sentence of the handout, and no clue describes its mistake."""


@dataclass(slots=True)
class CaseFindings:
    """The evidence of one case at all operations, the findings to report, and its cause once it is known."""

    comparison: Comparison
    evidence: list[Evidence] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    leaks: bool = False
    memory_errors: bool = False
    clue: Clue | None = None
    cause: Evidence | None = None
    group: str = ""
    """Cases of one group have one cause: the same faulting line, or the same rule and hint."""
    hint: str = ""
    said: str = ""
    """The part of the hint that comes from instruments."""
    broken: str = ""
    """The sentence of the handout that was broken."""
    not_yet: bool = False
    """Whether it goes wrong in a call that has not done its work in any case."""
    plain: bool = True
    """Whether it only calls what is to be written, on one target, without pokes and without an odd set-up."""

    first_wrong: int = field(init=False)
    """The first bad operation, -1 where all are right."""

    def __post_init__(self) -> None:
        """Find the first bad operation once, because there may be much evidence."""
        self.first_wrong = min((one.operation for one in self.evidence), default=-1)

    def first(self) -> list[Evidence]:
        """The evidence at the first bad operation."""
        return [one for one in self.evidence if one.operation == self.first_wrong]

    def facets(self, rule: Rule) -> frozenset[str]:
        """Return the facets of all that counts for this rule.

        In the clean-up only what earlier calls may have caused counts for every rule.
        """
        operations = self.comparison.case.trace.operations
        return self.comparison.facets(rule).union(
            one.symptom.facet
            for one in self.evidence
            if one.symptom is not None
            and one.symptom.facet
            and rule.counts(one.symptom.facet, operations[-1].name)
            and rule.counts_made_by(one.symptom.made_by)
        )


def case_findings(
    observed: Observations, lab: Lab, *, optional: OptionalStages
) -> tuple[list[CaseFindings], tuple[CallStage, ...]]:
    """Collect the evidence and findings of each case, and name the rule behind each by the lab's clues.

    Return them with the stage of each call (`progress`), none where nothing is wrong. `optional` runs what only
    explains.
    """
    comparisons, named = observed.comparisons, observed.named
    found = [
        CaseFindings(comparison, evidence(observed, number), plain=_is_plain(comparison.case.trace, lab))
        for number, comparison in enumerate(comparisons)
    ]
    failing = [one for one in found if one.evidence]
    calls = calls_of(comparisons, lambda number: found[number].first_wrong) if failing else ()
    by_call = stages(comparisons, lambda number: found[number].first_wrong, lab) if failing else ()
    not_yet = {call.call for call in by_call if call.stage is Stage.NOT_YET}
    patterns = Patterns(tuple(calls), lab.situation_words)
    clues = ClueTable(lab.clues)
    for number, one in enumerate(found):
        unseen = number in observed.unseen
        one.leaks = unseen or any(each.verdict is Verdict.MEMORY_LEAK for each in one.evidence)
        one.memory_errors = unseen or any(is_memory_error(each) for each in one.evidence)
        told = named.get((number, one.first_wrong))
        known = frozenset({STORED} if told is not None and told.stored else ())
        one.cause, one.clue = best_clue(one.first(), one.comparison, clues, patterns, told=known)
    _prefer_simple(found, clues, patterns)
    for number, one in enumerate(found):
        told = named.get((number, one.first_wrong))
        _name_line(one, clues, patterns, told)
        one.group = _group(one, told)
        one.not_yet = _call(one) in not_yet
    explain = partial(_explain, found, named, patterns, lab)
    optional.run(OptionalStage.EXPLANATIONS, explain, otherwise=None)
    for one in failing:
        one.findings = list(_findings(one, lab, clues, patterns))
    return found, by_call


def _explain(found: Sequence[CaseFindings], named: Mapping[Place, Named], patterns: Patterns, lab: Lab) -> None:
    """Add hints and the handout's sentences to the causes."""
    for number, one in enumerate(found):
        if one.clue is None or one.cause is None:
            continue
        told = named.get((number, one.first_wrong))
        one.said = told.said if told is not None else ""
        if one.not_yet:
            one.hint = f"{_NOT_YET.format(call=_call(one))} {one.said}".strip()
            continue
        one.hint = " ".join(filter(None, _hints(one, one.clue, told, lab)))
        one.broken = sentence(one.clue, one.cause, one.comparison, lab)
    _add_patterns(found, patterns)


def _hints(one: CaseFindings, clue: Clue, told: Named | None, lab: Lab) -> Iterator[str]:
    """Yield what the clue says and what instruments add; a line that explains all needs no more beside a symptom."""
    assert one.cause is not None
    explained = told is not None and told.explains_all
    if not explained or one.cause.difference is not None:
        yield hint(clue, one.cause, one.comparison, lab)
    if not explained:
        yield _beside(one)
    if told is not None:
        yield told.said


def _is_plain(trace: Trace, lab: Lab) -> bool:
    """Whether the trace has one target, no pokes and no odd set-up."""
    pokes = any(lab.grammar.operations[operation.name].is_poke for operation in trace.operations)
    one_target = len({operation.target for operation in trace.operations}) <= 1
    return one_target and not pokes and not lab.is_odd(trace)


def _prefer_simple(found: Sequence[CaseFindings], clues: ClueTable, patterns: Patterns) -> None:
    """Drop clues of several engines where the same mistake shows with one engine: then it is no mix-up of engines."""
    plain = clues.of_one_target
    simple = {(one.clue, _call(one)) for one in found if one.clue is not None and one.clue in plain.clues}
    for one in found:
        if one.clue is not None and SEVERAL_TARGETS in one.clue.circumstances:
            cause, clue = best_clue(one.first(), one.comparison, plain, patterns)
            if (clue, _call(one)) in simple:
                one.cause, one.clue = cause, clue


def _call(one: CaseFindings) -> str:
    return operation_of(one.cause, one.comparison).name if one.cause is not None else ""


def _group(one: CaseFindings, told: Named | None) -> str:
    """Name the group of a case: cases with the same faulting line, or with the same rule and hint, have one cause."""
    cause, clue = one.cause, one.clue
    if cause is None:
        return ""
    hangs = cause.verdict is Verdict.TIME_LIMIT_EXCEEDED  # the time limit may have interrupted it anywhere in its loop
    faulting = _faulting(one)
    if told is not None and told.explains_all:
        return f"{_MEMORY}{told.lines[0]}"
    if faulting is not None and not hangs:
        return f"{_LEAK if faulting.verdict is Verdict.MEMORY_LEAK else _MEMORY}{faulting.source[0]}"
    if clue is None or cause.difference is None:
        return f"{cause.kind} {_call(one)}"
    return f"{clue.rule} {clue.hint.replace('{call}', _call(one))}"


def _faulting(one: CaseFindings) -> Evidence | None:
    """The instruments' symptom of the first bad operation that has a line; a leak only where it is the cause itself."""
    assert one.cause is not None
    if one.cause.difference is None:
        return one.cause if one.cause.source else None
    faults = [each for each in one.first() if each.difference is None and each.source and each.explains_state]
    return min(faults, key=lambda each: each.at_origin, default=None)


def _beside(one: CaseFindings) -> str:
    """A sentence with what an instrument reported about the operation that left a wrong state; "" without one."""
    faulting = _faulting(one)
    if faulting is None or faulting is one.cause or faulting.symptom is None:
        return ""
    said = faulting.symptom.message
    place = "" if faulting.at_origin else f", at {faulting.source[0]}"
    difference = one.cause.difference if one.cause is not None else None
    lead = (
        "This leads to a memory error" if difference is not None and difference.facet == "reply" else "In the same call"
    )
    return f"{lead}{place}: {said[0].lower()}{said[1:]}."


def _add_patterns(found: Sequence[CaseFindings], patterns: Patterns) -> None:
    """Append to each group's hint what its public cases have in common; not where a line is known, which says more."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, one in enumerate(found):
        if one.group and one.clue is not None and not one.group.startswith((_MEMORY, _LEAK)):
            groups.setdefault((one.group, _call(one)), []).append(number)
    for (_, name), numbers in groups.items():
        shown = found[numbers[0]]
        if shown.not_yet:
            continue
        assert shown.clue is not None
        assert shown.cause is not None
        known = frozenset(word for word in shown.clue.circumstances - {SEVERAL_TARGETS} if not word.startswith(ONLY))
        if known != shown.clue.circumstances:  # the clue says the same already
            continue
        expected = shown.comparison.expected[min(shown.cause.operation, len(shown.comparison.expected) - 1)]
        pattern = patterns.sentence(numbers, name, known, expected)
        for number in numbers:
            found[number].hint = f"{found[number].hint} {pattern}".strip()


def _findings(one: CaseFindings, lab: Lab, clues: ClueTable, patterns: Patterns) -> Iterator[Finding]:
    """Yield the findings for the record: the first difference, and everything about memory, each with its rule."""
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
        yield from _breach(one, clues, patterns)
    for each in one.evidence:
        if each.symptom is not None:
            judged = Judged.LEAK if each.verdict is Verdict.MEMORY_LEAK else Judged.MEMORY_ERROR
            yield finding_of(
                each.symptom, one.comparison, rule if each is one.cause else lab.rubric.judged(judged, rule)
            )


def _name_line(one: CaseFindings, clues: ClueTable, patterns: Patterns, told: Named | None) -> None:
    """Give the cause its line: that of a store which breaks the same rule in the same operation.

    Otherwise it is the line of an access that an instrument reports, because the wrong state comes from it, or the
    line that was searched for (`told`).
    """
    cause, named = one.cause, _named(one)
    if cause is not None and cause.symptom is not None and cause.at_origin:
        access = next((other for other in one.first() if _is_access(other)), cause)
        one.cause = replace(cause, symptom=replace(cause.symptom, lines=access.source))
    if cause is not None and told is not None and told.explains_all:
        symptom = replace(cause.symptom, lines=told.lines) if cause.symptom is not None else None
        one.cause = replace(cause, searched=told.lines, symptom=symptom)
    if cause is None or cause.difference is None or (one.cause is not None and one.cause.culprits):
        return
    clue = clue_alone(named, one.comparison, clues, patterns) if named is not None else None
    faulting = _faulting(one)
    if named is not None and clue is not None and one.clue is not None and clue.rule == one.clue.rule:
        one.cause = replace(cause, searched=named.culprits)
    elif faulting is not None and not faulting.at_origin:
        one.cause = replace(cause, searched=faulting.source)
    elif told is not None:
        one.cause = replace(cause, searched=told.lines)


def _is_access(each: Evidence) -> bool:
    """Whether an instrument names the line of a wrong access."""
    return each.explains_state and not each.at_origin and bool(each.source)


def _named(one: CaseFindings) -> Evidence | None:
    """The first difference of the first bad operation whose line is known."""
    return next((each for each in one.first() if each.culprits), None)


def _breach(one: CaseFindings, clues: ClueTable, patterns: Patterns) -> Iterator[Finding]:
    """Yield a difference with a known line that is not the cause, with the rule that the difference itself breaks."""
    named = _named(one)
    if named is None or named.culprit is None or named.culprit.tool is None:
        return
    if one.cause is None or one.cause.culprits[:1] == named.culprits[:1]:
        return
    clue = clue_alone(named, one.comparison, clues, patterns)
    symptom = Symptom(
        operation=named.operation,
        verdict=Verdict.WRONG_ANSWER,
        kind=BREACH,
        message=f"here {_call(one)} writes something wrong",
        lines=named.culprits,
        tool=named.culprit.tool,
    )
    yield finding_of(symptom, one.comparison, clue.rule if clue is not None else one.comparison.case.rule)


def unplaced(found: Sequence[CaseFindings]) -> list[Unplaced]:
    """Return the operations in which cases first went wrong and whose lines are still unknown."""
    return [
        Unplaced(
            case=number,
            operation=one.cause.operation,
            comparison=one.comparison,
            kind=one.cause.kind,
            difference=one.cause.difference,
            judgement=one.cause.judgement,
            group=one.group,
            plain=one.plain,
        )
        for number, one in enumerate(found)
        if one.cause is not None and not one.cause.culprits
    ]
