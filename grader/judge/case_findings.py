"""The evidence of each case and its cause: the mistake that fits, the line, and the sentence that was broken.

A case's cause is among the evidence of its first bad operation; what comes later is mostly a consequence. The lab's
table of mistakes names the rule for each cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from grader.assignment.lab import ONLY, SEVERAL_TARGETS, STORED, Lab, Mistake
from grader.core.judgement import Symptom
from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.core.rubric import Rule
from grader.core.verdict import REFUSED, CallStage, Finding, Judged, Stage, Verdict
from grader.judge.calls import Patterns, calls_of, stages
from grader.judge.evidence import Evidence, evidence, finding_of
from grader.judge.mistakes import (
    MistakeTable,
    best_mistake,
    hint,
    is_memory_error,
    mistake_alone,
    operation_of,
    sentence,
)
from grader.judge.work import never_shown, sentence_of, shown_everywhere
from grader.runtime.comparison import Comparison, Shown
from grader.runtime.protocol import Named, Observations, Place, Unplaced
from reference.operation import Trace

_MEMORY, _LEAK = "memory at ", "leak at "
"""Prefixes of the names of groups whose cases share a line."""

NEVER_SHOWN = "never-shown"
"""Kind of a finding: the case asks for something that the program did in no case."""

BREACH = "breach"
"""Kind of a finding: a line that wrote something wrong, found by an instrument, in addition to the case's cause."""


_NOT_YET = "{call} is not written yet: its body does nothing but return. Write it next."
"""The hint for such a call. Missing code breaks no sentence of the handout, and no known mistake describes it."""


@dataclass(slots=True)
class CaseFindings:
    """The evidence of one case at all operations, the findings to report, and its cause once it is known."""

    comparison: Comparison
    evidence: list[Evidence] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    leaks: bool = False
    memory_errors: bool = False
    mistake: Mistake | None = None
    cause: Evidence | None = None
    group: str = ""
    """Cases of one group have one cause: the same faulting line, or the same rule and hint."""
    hint: str = ""
    broken: str = ""
    """The sentence of the handout that was broken."""
    not_yet: bool = False
    """Whether it goes wrong in a call that is not written yet."""
    resumed: bool = False
    """Whether it passes for its rule if the calls after the one that stopped it are judged separately."""
    never_shown: tuple[Shown, ...] = ()
    """The pairs of call and facet that it asks for and that the run never shows (grader.judge.work)."""
    plain: bool = True
    """Whether it uses only calls that students write, on one target, without pokes and without an odd set-up."""

    first_wrong: int = field(init=False)
    """The first bad operation, -1 if all are right."""

    def __post_init__(self) -> None:
        """Find the first bad operation once, because there may be much evidence."""
        self.first_wrong = min((piece.operation for piece in self.evidence), default=-1)

    def first(self) -> list[Evidence]:
        """The evidence at the first bad operation."""
        return [piece for piece in self.evidence if piece.operation == self.first_wrong]

    def take_rule(self) -> None:
        """Give a failing random trace the rule that it breaks, which then loses points."""
        case = self.comparison.case
        if not case.rule and self.mistake is not None:
            self.comparison = replace(self.comparison, case=replace(case, rule=self.mistake.rule))

    def refine(self, cause: Evidence) -> None:
        """Replace the cause by one with better lines; if it is a symptom, replace it in the evidence too."""
        if cause.symptom is not None:
            self.evidence = [cause if piece is self.cause else piece for piece in self.evidence]
        self.cause = cause

    def facets(self, rule: Rule) -> frozenset[str]:
        """Return the facets in which something is wrong that counts for this rule.

        A difference counts at its operation. Lost memory counts at the end of the case, for rules about the calls that
        obtained it.
        """
        operations = self.comparison.case.trace.operations
        return self.comparison.facets(rule).union(
            piece.symptom.facet
            for piece in self.evidence
            if piece.symptom is not None
            and piece.symptom.facet
            and rule.counts(piece.symptom.facet, operations[-1].name)
            and rule.counts_made_by(piece.symptom.made_by)
        )


def case_findings(
    observed: Observations,
    lab: Lab,
    *,
    unwritten: Collection[str] = (),
    resumed: Collection[int] = (),
    optional: OptionalStages,
) -> tuple[list[CaseFindings], tuple[CallStage, ...]]:
    """Collect the evidence and findings of each case, and name the rule behind each by the lab's mistakes.

    Return them with the stage of each call; there are no stages if nothing is wrong. `unwritten` are the calls whose
    body is empty, `resumed` the cases that pass when they are resumed (grader.judge.resume). `optional` runs the parts
    that only explain.
    """
    comparisons, named = observed.comparisons, observed.named
    everywhere = shown_everywhere(comparisons)
    cases = [
        CaseFindings(
            comparison,
            evidence(observed, number),
            plain=_is_plain(comparison.case.trace, lab),
            resumed=number in resumed,
            never_shown=never_shown(comparison, lab.rubric.rule(comparison.case.rule), everywhere),
        )
        for number, comparison in enumerate(comparisons)
    ]
    failing = [case for case in cases if case.evidence or case.never_shown]
    calls = calls_of(comparisons, lambda number: cases[number].first_wrong) if failing else ()
    by_call = stages(comparisons, lambda number: cases[number].first_wrong, lab, unwritten) if failing else ()
    not_yet = {call.call for call in by_call if call.stage is Stage.NOT_YET}
    patterns = Patterns(tuple(calls), lab.situation_words)
    mistakes = MistakeTable(lab.mistakes)
    for number, case in enumerate(cases):
        unseen = number in observed.unseen
        case.leaks = unseen or any(piece.verdict is Verdict.MEMORY_LEAK for piece in case.evidence)
        case.memory_errors = unseen or any(is_memory_error(piece) for piece in case.evidence)
        searched_line = named.get((number, case.first_wrong))
        known = frozenset({STORED} if searched_line is not None and searched_line.stored else ())
        case.cause, case.mistake = best_mistake(case.first(), case.comparison, mistakes, patterns, known=known)
    _prefer_simple(cases, mistakes, patterns)
    for case in cases:
        case.take_rule()
    for number, case in enumerate(cases):
        searched_line = named.get((number, case.first_wrong))
        _name_line(case, mistakes, patterns, searched_line)
        case.group = _group(case, searched_line)
        case.not_yet = _call(case) in not_yet
    explain = partial(_explain, cases, named, patterns, lab)
    optional.run(OptionalStage.EXPLANATIONS, explain, otherwise=None)
    for case in failing:
        case.findings = list(_findings(case, lab, mistakes, patterns))
    return cases, by_call


def _explain(cases: Sequence[CaseFindings], named: Mapping[Place, Named], patterns: Patterns, lab: Lab) -> None:
    """Add hints and the handout's sentences to the causes."""
    for number, case in enumerate(cases):
        if case.mistake is None or case.cause is None:
            continue
        searched_line = named.get((number, case.first_wrong))
        if case.not_yet:
            case.hint = _NOT_YET.format(call=_call(case))
            continue
        if case.cause.kind == REFUSED:
            continue
        case.hint = _joined(*_hints(case, case.mistake, searched_line, lab))
        case.broken = sentence(case.mistake, case.cause, case.comparison, lab)
    _add_patterns(cases, patterns)
    _add_settings(cases, lab)


def _hints(case: CaseFindings, mistake: Mistake, searched_line: Named | None, lab: Lab) -> Iterator[str]:
    """Yield the mistake's hint and what instruments add. If a line explains everything, a symptom needs no hint."""
    assert case.cause is not None
    explained = searched_line is not None and searched_line.explains_all
    if searched_line is not None and searched_line.leads:
        yield searched_line.sentence
    if not explained or case.cause.difference is not None:
        yield hint(mistake, case.cause, case.comparison, lab)
    if not explained:
        yield _beside(case)
    if searched_line is not None and not searched_line.leads:
        yield searched_line.sentence


def _joined(*sentences: str) -> str:
    """Join sentences; add a full stop to each but the last if it has no end."""
    parts = [sentence for sentence in sentences if sentence]
    return " ".join([*(f"{each}{'' if each.endswith(('.', '?', ':')) else '.'}" for each in parts[:-1]), *parts[-1:]])


def _is_plain(trace: Trace, lab: Lab) -> bool:
    """Whether the trace has one target, no pokes and no odd set-up."""
    pokes = any(lab.grammar.operations[operation.name].is_poke for operation in trace.operations)
    one_target = len({operation.target for operation in trace.operations}) <= 1
    return one_target and not pokes and not lab.is_odd(trace)


def _prefer_simple(cases: Sequence[CaseFindings], mistakes: MistakeTable, patterns: Patterns) -> None:
    """Drop mistakes about several engines if the same failure occurs with one engine: then no engines are mixed up."""
    plain = mistakes.of_one_target
    simple = {
        (case.mistake, _call(case)) for case in cases if case.mistake is not None and case.mistake in plain.mistakes
    }
    for case in cases:
        if case.mistake is not None and SEVERAL_TARGETS in case.mistake.circumstances:
            cause, mistake = best_mistake(case.first(), case.comparison, plain, patterns)
            if (mistake, _call(case)) in simple:
                case.cause, case.mistake = cause, mistake


def _call(case: CaseFindings) -> str:
    return operation_of(case.cause, case.comparison).name if case.cause is not None else ""


def _group(case: CaseFindings, searched_line: Named | None) -> str:
    """Name the group of a case: cases with the same faulting line, or with the same rule and hint, have one cause."""
    cause, mistake = case.cause, case.mistake
    if cause is None:
        return ""
    hangs = cause.verdict is Verdict.TIME_LIMIT_EXCEEDED  # the time limit may have interrupted it anywhere in its loop
    faulting = _faulting(case)
    if searched_line is not None and searched_line.explains_all:
        return f"{_MEMORY}{searched_line.lines[0]}"
    if faulting is not None and not hangs:
        return f"{_LEAK if faulting.verdict is Verdict.MEMORY_LEAK else _MEMORY}{faulting.source[0]}"
    if mistake is None or cause.difference is None:
        return f"{cause.kind} {_call(case)}"
    return f"{mistake.rule} {mistake.hint.replace('{call}', _call(case))}"


def _faulting(case: CaseFindings) -> Evidence | None:
    """Return the symptom at the first bad operation that has a line; a leak only if it is the cause itself."""
    assert case.cause is not None
    if case.cause.difference is None:
        return case.cause if case.cause.source else None
    faults = [piece for piece in case.first() if piece.difference is None and piece.source and piece.explains_state]
    return min(faults, key=lambda piece: piece.at_origin, default=None)


def _beside(case: CaseFindings) -> str:
    """Return a sentence with an instrument's report on the operation that left a wrong state; "" if there is none."""
    faulting = _faulting(case)
    if faulting is None or faulting is case.cause or faulting.symptom is None:
        return ""
    message = faulting.symptom.message
    place = "" if faulting.at_origin else f", at {faulting.source[0]}"
    difference = case.cause.difference if case.cause is not None else None
    lead = (
        "This leads to a memory error" if difference is not None and difference.facet == "reply" else "In the same call"
    )
    return f"{lead}{place}: {message[0].lower()}{message[1:]}."


def _add_patterns(cases: Sequence[CaseFindings], patterns: Patterns) -> None:
    """Append to each group's hint what its public cases have in common, unless a line is known, which says more."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, case in enumerate(cases):
        if case.group and case.mistake is not None and not case.group.startswith((_MEMORY, _LEAK)):
            groups.setdefault((case.group, _call(case)), []).append(number)
    for (_, name), numbers in groups.items():
        shown = cases[numbers[0]]
        if shown.not_yet:
            continue
        assert shown.mistake is not None
        assert shown.cause is not None
        known = frozenset(word for word in shown.mistake.circumstances - {SEVERAL_TARGETS} if not word.startswith(ONLY))
        if known != shown.mistake.circumstances:  # the mistake says the same already
            continue
        expected = shown.comparison.expected[min(shown.cause.operation, len(shown.comparison.expected) - 1)]
        pattern = patterns.sentence(numbers, name, known, expected)
        for number in numbers:
            cases[number].hint = _joined(cases[number].hint, pattern)


def _add_settings(cases: Sequence[CaseFindings], lab: Lab) -> None:
    """Append to the hints a setting that all failing cases have and some other cases do not have."""
    failing = [case for case in cases if case.cause is not None]
    for name, words in lab.setting_words.items():
        others = [case for case in cases if not case.comparison.case.trace.settings.get(name)]
        if others and all(case.cause is None for case in others):
            for case in failing:
                case.hint = _joined(case.hint, f"It goes wrong only in cases where {words}.")


def _findings(case: CaseFindings, lab: Lab, mistakes: MistakeTable, patterns: Patterns) -> Iterator[Finding]:
    """Yield the findings for the record: why the case fails, then all other symptoms, each with its rule."""
    cause, comparison = case.cause, case.comparison
    rule = case.mistake.rule if case.mistake is not None else comparison.case.rule
    if cause is not None and cause.difference is not None:
        difference = cause.difference
        yield Finding(
            rule=rule,
            verdict=Verdict.WRONG_ANSWER,
            kind=difference.facet,
            case=comparison.case.name,
            operation=cause.operation + 1,
            field=difference.field,
            expected=difference.expected,
            actual=difference.actual,
            message=difference.seen,
            hint=case.hint,
            source=cause.source,
        )
        yield from _breach(case, mistakes, patterns)
    elif cause is not None and cause.symptom is not None:
        yield replace(finding_of(cause.symptom, comparison, rule), hint=case.hint)
    for piece in case.evidence:
        if piece.symptom is not None and piece is not cause:
            judged = Judged.LEAK if piece.verdict is Verdict.MEMORY_LEAK else Judged.MEMORY_ERROR
            yield finding_of(piece.symptom, comparison, lab.rubric.judged(judged, rule))
    if case.never_shown:
        yield Finding(
            rule=comparison.case.rule,
            verdict=Verdict.WRONG_ANSWER,
            kind=NEVER_SHOWN,
            case=comparison.case.name,
            message=sentence_of(case.never_shown),
        )


def _name_line(case: CaseFindings, mistakes: MistakeTable, patterns: Patterns, searched_line: Named | None) -> None:
    """Give the cause its line: the line of a store that breaks the same rule in the same operation.

    If there is none, it is the line of an access that an instrument reports, because that access led to the wrong
    state, or else the line that a search found (`searched_line`).
    """
    cause, named = case.cause, _named(case)
    if cause is not None and cause.symptom is not None and cause.at_origin:
        access = next((other for other in case.first() if _is_access(other)), cause)
        case.refine(replace(cause, symptom=replace(cause.symptom, lines=access.source)))
    if cause is not None and searched_line is not None and searched_line.explains_all:
        symptom = replace(cause.symptom, lines=searched_line.lines) if cause.symptom is not None else None
        case.refine(replace(cause, searched=searched_line.lines, symptom=symptom))
    if cause is None or cause.difference is None or (case.cause is not None and case.cause.culprits):
        return
    mistake = mistake_alone(named, case.comparison, mistakes, patterns) if named is not None else None
    faulting = _faulting(case)
    if named is not None and mistake is not None and case.mistake is not None and mistake.rule == case.mistake.rule:
        case.cause = replace(cause, searched=named.culprits)
    elif faulting is not None and not faulting.at_origin:
        case.cause = replace(cause, searched=faulting.source)
    elif searched_line is not None:
        case.cause = replace(cause, searched=searched_line.lines)


def _is_access(piece: Evidence) -> bool:
    """Whether an instrument names the line of a wrong access."""
    return piece.explains_state and not piece.at_origin and bool(piece.source)


def _named(case: CaseFindings) -> Evidence | None:
    """Return the first difference of the first bad operation whose line is known."""
    return next((piece for piece in case.first() if piece.culprits), None)


def _breach(case: CaseFindings, mistakes: MistakeTable, patterns: Patterns) -> Iterator[Finding]:
    """Yield a finding for a difference that is not the cause and has a known line, with the rule that it breaks."""
    named = _named(case)
    if named is None or named.culprit is None or named.culprit.tool is None:
        return
    if case.cause is None or case.cause.culprits[:1] == named.culprits[:1]:
        return
    mistake = mistake_alone(named, case.comparison, mistakes, patterns)
    symptom = Symptom(
        operation=named.operation,
        verdict=Verdict.WRONG_ANSWER,
        kind=BREACH,
        message=f"here {_call(case)} writes something wrong",
        lines=named.culprits,
        tool=named.culprit.tool,
    )
    yield finding_of(symptom, case.comparison, mistake.rule if mistake is not None else case.comparison.case.rule)


def unplaced(cases: Sequence[CaseFindings], order: Sequence[int]) -> list[Unplaced]:
    """Return the operations in which cases first went wrong and whose lines are still unknown, in this order."""
    return [
        Unplaced(
            case=number,
            operation=case.cause.operation,
            comparison=case.comparison,
            kind=case.cause.kind,
            difference=case.cause.difference,
            judgement=case.cause.judgement,
        )
        for number in order
        for case in [cases[number]]
        if case.cause is not None and not case.cause.culprits
    ]
