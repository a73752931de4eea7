"""Choose the lab's mistake that fits the first evidence of a case, and the sentence of the handout that was broken."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from grader.assignment.lab import ONLY, SEVERAL_TARGETS, Lab, Mistake
from grader.core.judgement import NEVER_SET, UNREAD, Difference, Evidence, Judgement, Symptom
from grader.core.verdict import Verdict
from grader.judge.calls import Patterns
from grader.runtime.protocol import Comparison
from reference.operation import Operation

_REPLY, _STATE, _MEMORY = range(3)
_READ_BY_NAME = ". It is read by the name that it has in the handout: is it set, and spelt as there?"
_OF_DIFFERENCES = re.compile(r"\{(?:actual|expected|field|wanted)\}")
"""Placeholders that only a difference can fill."""


def operation_of(evidence: Evidence, comparison: Comparison) -> Operation:
    """Return the operation of the evidence; the last operation for evidence after the end."""
    operations = comparison.case.trace.operations
    return operations[_index(evidence, comparison)]


class MistakeTable:
    """A lab's known mistakes in their order, looked up by the call, facet and kind of a piece of evidence.

    Some mistakes depend on `patterns`, what the wrong calls of the submission have in common.
    """

    def __init__(self, mistakes: Sequence[Mistake], patterns: Patterns) -> None:
        self.mistakes = mistakes
        self.patterns = patterns
        self._looked_up: dict[tuple[str, str, str], tuple[tuple[int, Mistake], ...]] = {}

    def possible(self, call: str, facet: str, kind: str) -> tuple[tuple[int, Mistake], ...]:
        """Return the mistakes that may fit, with their places in the table; other conditions are not tested yet."""
        key = call, facet, kind
        if key not in self._looked_up:
            self._looked_up[key] = tuple(
                (place, mistake)
                for place, mistake in enumerate(self.mistakes)
                if (not mistake.calls or call in mistake.calls)
                and (not mistake.facets or facet in mistake.facets)
                and (not mistake.kinds or kind in mistake.kinds)
            )
        return self._looked_up[key]

    def rules_of(self, sentence: str) -> tuple[str, ...]:
        """Return the rules under which mistakes quote this sentence of the handout, the most frequent one first."""
        quoting = (
            mistake.rule
            for mistake in self.mistakes
            if sentence
            and sentence in ([mistake.clause] if isinstance(mistake.clause, str) else mistake.clause.values())
        )
        return tuple(rule for rule, _ in Counter(quoting).most_common())

    @cached_property
    def of_one_target(self) -> MistakeTable:
        """The table without the mistakes about several targets (engines, or other objects that operations act on)."""
        mistakes = [mistake for mistake in self.mistakes if SEVERAL_TARGETS not in mistake.circumstances]
        return MistakeTable(mistakes, self.patterns)


def best_mistake(
    first: Sequence[Evidence],
    comparison: Comparison,
    table: MistakeTable,
    *,
    known: frozenset[str] = frozenset(),
) -> tuple[Evidence, Mistake]:
    """Return the cause among the evidence `first` (of the first bad operation), and the mistake of the table that fits.

    `known` are circumstances of the program, in addition to those of the case. A wrong reply comes before a wrong
    state, and a wrong state before symptoms. If no mistake fits, the sentence of the handout by which the reference
    decided gives the rule: the case's own rule if mistakes of this rule quote the sentence, or if no mistake does;
    otherwise the rule whose mistakes quote the sentence most often.
    """
    for rank in (_REPLY, _STATE, _MEMORY):
        cause, mistake = _first_fitting(
            [
                _SeenValues(evidence=evidence, comparison=comparison, patterns=table.patterns, known=known)
                for evidence in first
                if _rank(evidence) == rank
            ],
            table,
        )
        if cause is not None and mistake is not None:
            return cause, mistake
    cause = min(first, key=_rank)
    own, rules = comparison.case.rule, table.rules_of(comparison.expected[_index(cause, comparison)].clause)
    rule = own if own in rules or not rules else rules[0]
    return cause, Mistake(rule=rule, hint=_hint_without_mistake(cause))


def _hint_without_mistake(cause: Evidence) -> str:
    if isinstance(cause, Symptom):
        return "{message}"
    by_name = UNREAD in cause.tags and "Error" in cause.actual
    return "{wanted}" + _READ_BY_NAME * by_name


def mistake_alone(evidence: Evidence, comparison: Comparison, table: MistakeTable) -> Mistake | None:
    """Return the first mistake that fits this evidence alone. Mistakes about several targets are left out."""
    seen = _SeenValues(evidence=evidence, comparison=comparison, patterns=table.patterns)
    return _first_fitting([seen], table.of_one_target)[1]


def hint(mistake: Mistake, cause: Evidence, comparison: Comparison, lab: Lab) -> str:
    """Return the mistake's hint, filled in for this evidence."""
    index = _index(cause, comparison)
    expected = comparison.expected[index]
    difference = cause if isinstance(cause, Difference) else None
    text = mistake.hint.format(
        call=operation_of(cause, comparison).name,
        field=difference.in_words if difference else "",
        expected=difference.expected if difference else "",
        actual=_actual(difference) if difference else "",
        line=str(cause.lines[0]) if cause.lines else lab.source_name,
        clause=lab.grammar.clauses.get(expected.clause, ""),
        note=difference.note if difference else "",
        reply=expected.text,
        wanted=difference.wanted if difference else "",
        refusal=" or ".join(lab.grammar.operations[operation_of(cause, comparison).name].refusals),
        message=cause.message if isinstance(cause, Symptom) else "",
    )
    return " ".join(text.split())


def _actual(difference: Difference) -> str:
    return "not set" if NEVER_SET in difference.tags else difference.actual


def sentence(mistake: Mistake, cause: Evidence, comparison: Comparison, lab: Lab) -> str:
    """Return the handout's sentence that was broken, with its place: "Task 2: the call returns 0"."""
    clause = mistake.clause
    if not isinstance(clause, str):
        clause = clause.get(operation_of(cause, comparison).name, "")
    if not clause and not (isinstance(cause, Difference) and UNREAD in cause.tags):
        clause = comparison.expected[_index(cause, comparison)].clause
    text = lab.grammar.clauses.get(clause, "")
    return f"{clause.partition('/')[0]}: {text}" if text else ""


def is_memory_error(evidence: Evidence) -> bool:
    """Whether the evidence costs points for memory errors."""
    return evidence.verdict in (Verdict.MEMORY_ERROR, Verdict.RUN_TIME_ERROR, Verdict.TIME_LIMIT_EXCEEDED)


def _rank(evidence: Evidence) -> int:
    if isinstance(evidence, Symptom):
        return _MEMORY
    return _REPLY if evidence.facet == "reply" else _STATE


@dataclass(frozen=True, kw_only=True)
class _SeenValues:
    """A piece of evidence and the values that mistakes test, each computed once for all mistakes."""

    evidence: Evidence
    comparison: Comparison
    patterns: Patterns
    known: frozenset[str] = frozenset()

    @cached_property
    def call(self) -> str:
        return operation_of(self.evidence, self.comparison).name

    @property
    def difference(self) -> Difference | None:
        """The evidence, if it is a difference."""
        return self.evidence if isinstance(self.evidence, Difference) else None

    @property
    def judgement(self) -> Judgement | None:
        """The judgement that a difference comes from; None for a symptom."""
        return self.comparison.wrong[self.difference.operation] if self.difference is not None else None

    @cached_property
    def circumstances(self) -> frozenset[str]:
        comparison, judgement = self.comparison, self.judgement
        index = _index(self.evidence, comparison)
        reply = judgement.expected if judgement is not None else comparison.expected[index]
        targets = {operation.target for operation in comparison.case.trace.operations} - {None}
        several = len(targets) > 1 or _made_again(comparison, index)
        only = self.patterns.only(self.call, reply) if judgement is not None else frozenset()
        never = {f"{ONLY}never"} if self.call in self.patterns.never else set()
        decided = {reply.clause, reply.text} if reply.refused else {reply.clause}
        return reply.circumstances | decided | only | never | ({SEVERAL_TARGETS} if several else set()) | self.known


def _first_fitting(all_seen: Sequence[_SeenValues], table: MistakeTable) -> tuple[Evidence | None, Mistake | None]:
    """Return (evidence, mistake): the first mistake that fits any of the evidence, and the first evidence it fits."""
    best, cause, fitting = len(table.mistakes), None, None
    for seen in all_seen:
        facet = seen.difference.facet if seen.difference is not None else ""
        for place, mistake in table.possible(seen.call, facet, seen.evidence.matched_kind):
            if place >= best:
                break
            if _fits(mistake, seen):
                best, cause, fitting = place, seen.evidence, mistake
    return cause, fitting


def _fits(mistake: Mistake, seen: _SeenValues) -> bool:
    """Whether the conditions hold that `MistakeTable.possible` does not test."""
    difference = seen.difference
    tags = difference.tags if difference is not None else frozenset()
    return (
        (difference is not None or not _OF_DIFFERENCES.search(mistake.hint))
        and (not mistake.part or (difference is not None and mistake.part in difference.field))
        and mistake.tags <= tags
        and (UNREAD in mistake.tags or UNREAD not in tags)  # an unreadable value says nothing about the program
        and mistake.never <= seen.patterns.never
        and (not mistake.circumstances or mistake.circumstances <= seen.circumstances)
        and (mistake.where is None or (seen.judgement is not None and mistake.where(seen.judgement)))
    )


def _index(evidence: Evidence, comparison: Comparison) -> int:
    return min(evidence.operation, len(comparison.case.trace.operations) - 1)


def _made_again(comparison: Comparison, index: int) -> bool:
    """Whether the target of operation `index`, such as an engine, has the number of an earlier target."""
    operations = comparison.case.trace.operations[: index + 1]
    accepted = [
        operation.name
        for operation, reply in zip(operations, comparison.expected, strict=False)
        if operation.target == operations[-1].target and not reply.refused
    ]
    return accepted.count(accepted[0]) > 1 if accepted else False  # the first accepted call makes the target
