"""The evidence of each case and its cause: the mistake that fits, the line, and the broken sentence of the handout.

A case's cause is among the evidence of its first bad operation; what comes later is mostly a consequence. The lab's
table of mistakes names the rule for each cause. `case_findings` takes the steps one after the other; each step returns
new values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grader.assignment.lab import ONLY, SEVERAL_TARGETS, STORED, Lab, Mistake
from grader.core.errors import OptionalStage, OptionalStages
from grader.core.judgement import Difference, Evidence, Symptom
from grader.core.rubric import Rule
from grader.core.verdict import REFUSED, CallStage, Finding, Judged, SourceLine, Stage, Verdict
from grader.judge.calls import Patterns, calls_of, stages
from grader.judge.compare import evidence, finding_of
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
from grader.runtime.protocol import Comparison, Observations, Origin, Shown, Unplaced
from reference.operation import Trace

_MEMORY, _LEAK = "memory at ", "leak at "
"""Prefixes of the names of groups whose cases share a line."""

NEVER_SHOWN = "never-shown"
"""Kind of a finding: the case asks for something that the program did in no case."""

BREACH = "breach"
"""Kind of a finding: a line that wrote something wrong, found by an instrument, in addition to the case's cause."""


_NOT_YET = "{call} is not written yet: its body does nothing but return. Write it next."
"""The hint for a call that is not written yet. It breaks no sentence of the handout, and fits no known mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFindings:
    """What the judge finds out about one case: the evidence, its cause, and the findings to report."""

    comparison: Comparison
    evidence: tuple[Evidence, ...] = ()
    first_wrong: int = -1
    """The first bad operation, -1 if all are right."""
    cause: Evidence | None = None
    """The evidence that says why the case fails, with its lines if they are known; None without evidence."""
    mistake: Mistake | None = None
    """The mistake that fits the cause; None without a cause."""
    group: str = ""
    """Cases of one group have one cause: the same faulting line, or the same rule and hint."""
    hint: str = ""
    broken: str = ""
    """The sentence of the handout that was broken."""
    findings: tuple[Finding, ...] = ()
    leaks: bool = False
    memory_errors: bool = False
    resumed: bool = False
    """Whether the case passes for its rule if the calls after the one that stopped the case are judged separately."""
    never_shown: tuple[Shown, ...] = ()
    """The pairs of call and facet that the case asks for and that no case of the run shows (grader.judge.work)."""
    plain: bool = True
    """Whether the case has one target, no pokes and no unusual set-up."""

    @property
    def rule(self) -> str:
        """The rule that the case's cause breaks; without a cause the case's own rule."""
        return self.mistake.rule if self.mistake is not None else self.comparison.case.rule

    @property
    def call(self) -> str:
        """The name of the call that goes wrong first; "" if none does."""
        return operation_of(self.cause, self.comparison).name if self.cause is not None else ""

    def first(self) -> list[Evidence]:
        """Return the evidence at the first bad operation."""
        return [piece for piece in self.evidence if piece.operation == self.first_wrong]

    def facets(self, rule: Rule) -> frozenset[str]:
        """Return the facets in which something is wrong that counts for this rule.

        A difference counts for rules about the call at which it was seen. Memory that is lost at the end of the case
        counts for rules about the calls that allocated it.
        """
        operations = self.comparison.case.trace.operations
        return self.comparison.facets(rule).union(
            piece.facet
            for piece in self.evidence
            if isinstance(piece, Symptom)
            and piece.facet
            and rule.counts(piece.facet, operations[-1].name)
            and rule.counts_made_by(piece.made_by)
        )


def case_findings(
    observed: Observations,
    lab: Lab,
    *,
    unwritten: Collection[str] = (),
    resumed: Collection[int] = (),
    optional: OptionalStages,
) -> tuple[tuple[CaseFindings, ...], tuple[CallStage, ...]]:
    """Return the evidence, cause and findings of each case, and the stage of each call; no stages if nothing is wrong.

    The lab's mistakes name the rule that each cause breaks. `unwritten` are the calls whose body is empty or only
    returns, `resumed` the cases that pass when they are resumed (grader.judge.resume). `optional` runs the parts that
    only explain.
    """
    comparisons = observed.comparisons
    cases = _with_evidence(observed, lab, resumed)
    if not any(case.evidence or case.never_shown for case in cases):
        return tuple(cases), ()
    first_wrong = [case.first_wrong for case in cases]
    patterns = Patterns(tuple(calls_of(comparisons, first_wrong)), lab.situation_words)
    by_call = stages(comparisons, first_wrong, lab, unwritten)
    mistakes = MistakeTable(lab.mistakes, patterns)
    origins = [observed.searched.get((number, case.first_wrong)) for number, case in enumerate(cases)]
    cases = [_with_cause(case, mistakes, origin) for case, origin in zip(cases, origins, strict=True)]
    cases = _prefer_simple(cases, mistakes)
    cases = [_with_line(case, mistakes, origin) for case, origin in zip(cases, origins, strict=True)]
    not_yet = {call.call for call in by_call if call.stage is Stage.NOT_YET}
    explain = partial(_with_hints, cases, origins, patterns, lab, not_yet=not_yet)
    cases = optional.run(OptionalStage.EXPLANATIONS, explain, otherwise=cases)
    return tuple(replace(case, findings=tuple(_findings(case, lab, mistakes))) for case in cases), by_call


def _with_evidence(observed: Observations, lab: Lab, resumed: Collection[int]) -> list[CaseFindings]:
    everywhere = shown_everywhere(observed.comparisons)
    cases = []
    for number, comparison in enumerate(observed.comparisons):
        pieces, unseen = evidence(observed, number), number in observed.unseen
        cases.append(
            CaseFindings(
                comparison=comparison,
                evidence=pieces,
                first_wrong=min((piece.operation for piece in pieces), default=-1),
                leaks=unseen or any(piece.verdict is Verdict.MEMORY_LEAK for piece in pieces),
                memory_errors=unseen or any(map(is_memory_error, pieces)),
                resumed=number in resumed,
                never_shown=never_shown(comparison, lab.rubric.rule(comparison.case.rule), everywhere),
                plain=_is_plain(comparison.case.trace, lab),
            )
        )
    return cases


def _is_plain(trace: Trace, lab: Lab) -> bool:
    """Whether the trace has one target, no pokes and no unusual set-up (`Lab.is_odd`)."""
    pokes = any(lab.grammar.operations[operation.name].is_poke for operation in trace.operations)
    one_target = len({operation.target for operation in trace.operations}) <= 1
    return one_target and not pokes and not lab.is_odd(trace)


def _with_cause(case: CaseFindings, mistakes: MistakeTable, origin: Origin | None = None) -> CaseFindings:
    """Return the case with its cause and the mistake that fits this cause."""
    if not case.evidence:
        return case
    known = frozenset({STORED} if origin is not None and origin.stored else ())
    cause, mistake = best_mistake(case.first(), case.comparison, mistakes, known=known)
    return replace(case, cause=cause, mistake=mistake)


def _prefer_simple(cases: Sequence[CaseFindings], mistakes: MistakeTable) -> list[CaseFindings]:
    """Drop mistakes about several engines if the same failure occurs with one engine: then no engines are mixed up."""
    plain = mistakes.of_one_target
    simple = {(case.mistake, case.call) for case in cases if case.mistake in plain.mistakes}
    preferred = []
    for case in cases:
        if case.mistake is not None and SEVERAL_TARGETS in case.mistake.circumstances:
            other = _with_cause(case, plain)
            preferred.append(other if (other.mistake, case.call) in simple else case)
        else:
            preferred.append(case)
    return [_with_rule(case) for case in preferred]


def _with_rule(case: CaseFindings) -> CaseFindings:
    """Give a failing random trace the rule that it breaks: it has no rule of its own, and must cost points."""
    own = case.comparison.case
    if own.rule or case.mistake is None:
        return case
    return replace(case, comparison=replace(case.comparison, case=replace(own, rule=case.mistake.rule)))


def _with_line(case: CaseFindings, mistakes: MistakeTable, origin: Origin | None) -> CaseFindings:
    """Return the case with the lines of its cause, and with its group, which depends on these lines."""
    cause = case.cause
    if cause is None:
        return case
    lines = _lines_of_cause(case, cause, mistakes, origin)
    better = replace(cause, lines=lines) if lines != cause.lines else cause
    pieces = case.evidence
    if isinstance(better, Symptom):  # it is reported with the better lines, too
        pieces = tuple(better if piece is cause else piece for piece in pieces)
    case = replace(case, cause=better, evidence=pieces)
    return replace(case, group=_group(case, origin))


def _lines_of_cause(
    case: CaseFindings, cause: Evidence, mistakes: MistakeTable, origin: Origin | None
) -> tuple[SourceLine, ...]:
    """Return the lines of a cause.

    If `origin` explains all, they are its lines. Otherwise a symptom has lines of its own; if these are only where its
    memory was allocated, it gets those of a wrong access. A difference without lines gets those of a store that breaks
    the rule in the same operation; else those of an access that an instrument reports, because that access led to the
    wrong state; else those that a search found (`origin`).
    """
    if origin is not None and origin.explains_all:
        return origin.lines
    if isinstance(cause, Symptom):
        accesses = (other.lines for other in case.first() if _is_access(other)) if cause.at_origin else iter(())
        return next(accesses, cause.lines)
    if cause.lines:
        return cause.lines
    store = _difference_with_line(case)
    if store is not None and case.mistake is not None:
        mistake = mistake_alone(store, case.comparison, mistakes)
        if mistake is not None and mistake.rule == case.mistake.rule:
            return store.lines
    faulting = _faulting(case)
    if faulting is not None and not faulting.at_origin:
        return faulting.lines
    return origin.lines if origin is not None else ()


def _difference_with_line(case: CaseFindings) -> Difference | None:
    """Return the first difference at the first bad operation for which an instrument found the line."""
    return next((piece for piece in case.first() if isinstance(piece, Difference) and piece.lines), None)


def _is_access(piece: Evidence) -> bool:
    """Whether the evidence is a wrong access whose line an instrument reports."""
    return isinstance(piece, Symptom) and piece.explains_state and not piece.at_origin and bool(piece.lines)


def _faulting(case: CaseFindings) -> Symptom | None:
    """Return the cause if it is a symptom with lines; for a difference, the symptom with lines that explains it."""
    if isinstance(case.cause, Symptom):
        return case.cause if case.cause.lines else None
    faults = (piece for piece in case.first() if isinstance(piece, Symptom) and piece.lines and piece.explains_state)
    return min(faults, key=lambda piece: piece.at_origin, default=None)


def _group(case: CaseFindings, origin: Origin | None) -> str:
    """Name the group of a case: cases with the same faulting line, or with the same rule and hint, have one cause."""
    cause, mistake, faulting = case.cause, case.mistake, _faulting(case)
    assert cause is not None
    assert mistake is not None
    hangs = cause.verdict is Verdict.TIME_LIMIT_EXCEEDED  # the time limit may have interrupted it anywhere in its loop
    if origin is not None and origin.explains_all:
        return f"{_MEMORY}{origin.lines[0]}"
    if faulting is not None and not hangs:
        return f"{_LEAK if faulting.verdict is Verdict.MEMORY_LEAK else _MEMORY}{faulting.lines[0]}"
    if isinstance(cause, Symptom):
        return f"{cause.matched_kind} {case.call}"
    return f"{mistake.rule} {mistake.hint.replace('{call}', case.call)}"


def _with_hints(
    cases: Sequence[CaseFindings],
    origins: Sequence[Origin | None],
    patterns: Patterns,
    lab: Lab,
    *,
    not_yet: Collection[str],
) -> list[CaseFindings]:
    """Return the cases, each with its hint and the sentence of the handout that it breaks."""
    shared, settings = _patterns_of_groups(cases, patterns, not_yet), _settings_of_all(cases, lab)
    explained = []
    for number, (case, origin) in enumerate(zip(cases, origins, strict=True)):
        text = _joined(*_hints(case, origin, lab, not_yet), shared.get(number, ""), *settings) if case.cause else ""
        explained.append(replace(case, hint=text, broken=_broken(case, lab, not_yet)))
    return explained


def _hints(case: CaseFindings, origin: Origin | None, lab: Lab, not_yet: Collection[str]) -> Iterator[str]:
    """Yield what the student should look at: the mistake's hint and what instruments add.

    If a line explains everything, a symptom needs no hint.
    """
    cause, mistake = case.cause, case.mistake
    if cause is None or mistake is None or cause.matched_kind == REFUSED:
        return
    if case.call in not_yet:
        yield _NOT_YET.format(call=case.call)
        return
    explained = origin is not None and origin.explains_all
    if origin is not None and origin.leads:
        yield origin.sentence
    if not explained or isinstance(cause, Difference):
        yield hint(mistake, cause, case.comparison, lab)
    if not explained:
        yield _beside(case)
    if origin is not None and not origin.leads:
        yield origin.sentence


def _broken(case: CaseFindings, lab: Lab, not_yet: Collection[str]) -> str:
    """Return the handout's sentence that was broken; "" if there is none."""
    cause, mistake = case.cause, case.mistake
    if cause is None or mistake is None or cause.matched_kind == REFUSED or case.call in not_yet:
        return ""
    return sentence(mistake, cause, case.comparison, lab)


def _joined(*sentences: str) -> str:
    """Join sentences; add a full stop to each but the last if it does not end with a punctuation mark."""
    parts = [sentence for sentence in sentences if sentence]
    return " ".join([*(f"{each}{'' if each.endswith(('.', '?', ':')) else '.'}" for each in parts[:-1]), *parts[-1:]])


def _beside(case: CaseFindings) -> str:
    """Return a sentence with an instrument's report on the operation that left a wrong state; "" if there is none."""
    cause, faulting = case.cause, _faulting(case)
    if faulting is None or not isinstance(cause, Difference):
        return ""
    place = "" if faulting.at_origin else f", at {faulting.lines[0]}"
    lead = "This leads to a memory error" if cause.facet == "reply" else "In the same call"
    return f"{lead}{place}: {faulting.message[0].lower()}{faulting.message[1:]}."


def _patterns_of_groups(
    cases: Sequence[CaseFindings], patterns: Patterns, not_yet: Collection[str]
) -> Mapping[int, str]:
    """Map cases to what the public cases of their group have in common. A group with a known line needs no hint."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, case in enumerate(cases):
        if case.group and case.call not in not_yet and not case.group.startswith((_MEMORY, _LEAK)):
            groups.setdefault((case.group, case.call), []).append(number)
    sentences: dict[int, str] = {}
    for (_, name), numbers in groups.items():
        shown = cases[numbers[0]]
        assert shown.mistake is not None
        assert shown.cause is not None
        known = frozenset(word for word in shown.mistake.circumstances - {SEVERAL_TARGETS} if not word.startswith(ONLY))
        if known == shown.mistake.circumstances:  # otherwise the mistake says the same already
            expected = shown.comparison.expected[min(shown.cause.operation, len(shown.comparison.expected) - 1)]
            sentences |= dict.fromkeys(numbers, patterns.sentence(numbers, name, known, expected))
    return sentences


def _settings_of_all(cases: Sequence[CaseFindings], lab: Lab) -> list[str]:
    """Return a sentence for each setting that all failing cases have and some other cases do not have."""
    sentences = []
    for name, words in lab.setting_words.items():
        others = [case for case in cases if not case.comparison.case.trace.settings.get(name)]
        if others and all(case.cause is None for case in others):
            sentences.append(f"It goes wrong only in cases where {words}.")
    return sentences


def _findings(case: CaseFindings, lab: Lab, mistakes: MistakeTable) -> Iterator[Finding]:
    """Yield the findings for the record: why the case fails, then all other symptoms, each with its rule."""
    cause, comparison = case.cause, case.comparison
    if isinstance(cause, Difference):
        yield Finding(
            rule=case.rule,
            verdict=cause.verdict,
            kind=cause.facet,
            case=comparison.case.name,
            operation=cause.operation + 1,
            field=cause.field,
            expected=cause.expected,
            actual=cause.actual,
            message=cause.seen,
            hint=case.hint,
            source=cause.lines,
        )
        yield from _breach(case, cause, mistakes)
    elif cause is not None:
        yield replace(finding_of(cause, comparison, case.rule), hint=case.hint)
    for piece in case.evidence:
        if isinstance(piece, Symptom) and piece is not cause:
            judged = Judged.LEAK if piece.verdict is Verdict.MEMORY_LEAK else Judged.MEMORY_ERROR
            yield finding_of(piece, comparison, lab.rubric.judged(judged, case.rule))
    if case.never_shown:
        yield Finding(
            rule=comparison.case.rule,
            verdict=Verdict.WRONG_ANSWER,
            kind=NEVER_SHOWN,
            case=comparison.case.name,
            message=sentence_of(case.never_shown),
        )


def _breach(case: CaseFindings, cause: Difference, mistakes: MistakeTable) -> Iterator[Finding]:
    """Yield a finding, with the broken rule, if an instrument found a wrong store at another line than the cause's."""
    store = _difference_with_line(case)
    if store is None or store.tool is None or cause.lines[:1] == store.lines[:1]:
        return
    mistake = mistake_alone(store, case.comparison, mistakes)
    symptom = Symptom(
        operation=store.operation,
        verdict=store.verdict,
        kind=BREACH,
        message=f"here {case.call} writes something wrong",
        lines=store.lines,
        tool=store.tool,
    )
    yield finding_of(symptom, case.comparison, mistake.rule if mistake is not None else case.comparison.case.rule)


def unplaced(cases: Sequence[CaseFindings], order: Sequence[int]) -> list[Unplaced]:
    """Return the causes to search lines for, in the order `order`: differences without lines, and all symptoms.

    A symptom's own line says where the symptom was seen; a search may find the line that caused it.
    """
    causes = ((number, cases[number].cause) for number in order)
    return [
        (number, cause)
        for number, cause in causes
        if cause is not None and (isinstance(cause, Symptom) or not cause.lines)
    ]
