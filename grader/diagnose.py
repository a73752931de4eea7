"""From what was seen to what is broken: symptoms of each case, findings, and the most likely rule.

A case's symptoms are those of its first bad operation; what follows is mostly a consequence. The lab's table of
clues names the rule for each; the rule that explains most cases is the diagnosis.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grader.compare import Comparison, End
from grader.lab import SEVERAL_TARGETS, Clue, Lab
from grader.memcheck import LEAK, Checked
from grader.replay import BlockEvent, Event
from grader.rubric import Judged
from grader.verdict import Diagnosis, Finding, SourceLine, Tool, Verdict, Visibility
from reference.model import Difference, Judgement
from reference.operation import Operation

__all__ = ["CaseFindings", "Diagnosed", "Symptom", "case_findings", "diagnose", "stacks_of"]

Lines = Mapping[tuple[int, ...], tuple[SourceLine, ...]]
"""The student's lines on each stack of addresses (see grader.symbols)."""

_FREE_KINDS = {1: "double-free", 2: "free-inside", 3: "free-foreign"}
_FREE_WORDS = {
    "double-free": "frees memory that is already freed",
    "free-inside": "frees an address inside an allocation, not its start",
    "free-foreign": "frees memory that malloc never returned (the pool, the list's dummy head, or a stray pointer)",
}
_BROKEN_KINDS = {4: "underrun", 5: "overrun", 6: "write-after-free"}
_BROKEN_WORDS = {
    "underrun": "writes before the start of an allocation of {size} bytes",
    "overrun": "writes past the end of an allocation of {size} bytes",
    "write-after-free": "writes into memory that was already freed ({size} bytes)",
}
_MOST_LEAK_LINES = 4
_RECURSION = 8  # the same return address so often on the stack
_CLEANUP_VOTE = 0.2
"""Every case ends with a clean-up, so a defect that shows there shows everywhere; what shows earlier tells more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that was wrong at one operation (counted from 0)."""

    operation: int
    verdict: Verdict
    kind: str = ""
    difference: Difference | None = None
    judgement: Judgement | None = None
    finding: Finding | None = None

    @property
    def source(self) -> tuple[SourceLine, ...]:
        return self.finding.source if self.finding is not None else ()


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


def stacks_of(comparisons: Iterable[Comparison]) -> Iterator[tuple[int, ...]]:
    """All stacks whose lines `case_findings` will ask for."""
    for comparison in comparisons:
        played = comparison.played
        for fault in (played.fault, played.left):
            if fault is not None:
                yield fault.stack
        for event in played.events:
            yield _stack(event.allocated_at)
            yield _stack(event.caller)


def case_findings(
    comparisons: Sequence[Comparison], lines: Lines, checked: Checked | None, lab: Lab
) -> list[CaseFindings]:
    """Gather symptoms and findings case by case, and name the rule behind each by the lab's clues."""
    found = [CaseFindings(comparison) for comparison in comparisons]
    for one in found:
        one.symptoms += _differences(one.comparison)
        one.symptoms += _endings(one.comparison, lines)
        one.symptoms += _frees_and_canaries(one.comparison, lines)
        one.symptoms += _leaks(one.comparison, lines)
    if checked is not None:
        for number, symptom in _valgrind(comparisons, checked):
            if not _known(symptom, found[number].symptoms):
                found[number].symptoms.append(symptom)
        for number in checked.unchecked:
            found[number].memory_errors = True
    for one in found:
        one.leaks |= any(symptom.verdict is Verdict.MEMORY_LEAK for symptom in one.symptoms)
        one.memory_errors |= any(_is_memory_error(symptom) for symptom in one.symptoms)
        one.cause, one.clue = _best_clue(one, lab.clues)
    _prefer_simple(found, lab.clues)
    for one in found:
        if one.clue is not None and one.cause is not None:
            one.hint = _hint(one.clue, one.cause, _operation(one), one.comparison, lab)
        one.findings = list(_findings(one, lab))
    return found


def diagnose(found: Sequence[CaseFindings], lab: Lab) -> Diagnosed:
    """Name the rule that explains most of the cases that went wrong."""
    sick = [one for one in found if one.clue is not None and one.cause is not None]
    if not sick:
        return Diagnosed(diagnosis=None, verdict=Verdict.ACCEPTED)
    votes: dict[str, float] = {}
    for one in sick:
        assert one.clue is not None
        votes[one.clue.rule] = votes.get(one.clue.rule, 0) + (_CLEANUP_VOTE if _only_in_cleanup(one) else 1)
    ranked = sorted(votes, key=lambda rule: -votes[rule])
    chosen = _most_common_verdict([one for one in sick if one.clue is not None and one.clue.rule == ranked[0]])
    shortest = min(chosen, key=lambda one: _difficulty(one, ranked[0]))
    clue, cause = shortest.clue, shortest.cause
    assert clue is not None
    assert cause is not None
    return Diagnosed(
        diagnosis=_diagnosis(shortest, clue, cause, lab, also=tuple(ranked[1:])), verdict=cause.verdict
    )


def _only_in_cleanup(one: CaseFindings) -> bool:
    """Went all well until the clean-up that the grader added?"""
    return one.cause is not None and one.comparison.is_cleanup(one.cause.operation)


def _most_common_verdict(found: list[CaseFindings]) -> list[CaseFindings]:
    """Those cases whose verdict most of them have; what shows before the clean-up says more than what shows there."""
    by_verdict: dict[Verdict, list[CaseFindings]] = {Verdict.WRONG_ANSWER: []}
    for one in [one for one in found if not _only_in_cleanup(one)] or found:
        if one.cause is not None:
            by_verdict.setdefault(one.cause.verdict, []).append(one)
    return max(by_verdict.values(), key=len)


def _known(symptom: Symptom, symptoms: Iterable[Symptom]) -> bool:
    """Valgrind and our own table of allocations tell of the same leak."""
    return symptom.verdict is Verdict.MEMORY_LEAK and any(
        other.verdict is Verdict.MEMORY_LEAK and other.source[:1] == symptom.source[:1] for other in symptoms
    )


def _difficulty(one: CaseFindings, rule: str) -> tuple[bool, bool, int, int]:
    """Which case to show: one that students may see, about this rule, short, and with little state."""
    comparison = one.comparison
    state = sum(len(step.record) for step in comparison.played.steps[:1])
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
    at = f"{operation.name} at operation {cause.operation + 1}"
    if cause.finding is not None:
        return f"{at}: {cause.finding.message}"
    difference = cause.difference
    assert difference is not None
    return f"{at}: {difference.field} is {difference.actual}, expected {difference.expected}"


def _hint(clue: Clue, cause: Symptom, operation: Operation, comparison: Comparison, lab: Lab) -> str:
    reply = comparison.expected[min(cause.operation, len(comparison.expected) - 1)]
    difference = cause.difference
    return clue.hint.format(
        call=operation.name,
        field=difference.field if difference else "",
        expected=difference.expected if difference else "",
        actual=difference.actual if difference else "",
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
    return reply.circumstances | ({SEVERAL_TARGETS} if len(targets) > 1 else frozenset())


def _differences(comparison: Comparison) -> Iterator[Symptom]:
    for deviation in comparison.deviations:
        for difference in deviation.judgement.differences:
            if difference.facet == "heap":
                continue  # the events behind it say more
            yield Symptom(
                operation=deviation.operation,
                verdict=Verdict.WRONG_ANSWER,
                difference=difference,
                judgement=deviation.judgement,
            )


def _endings(comparison: Comparison, lines: Lines) -> Iterator[Symptom]:
    """The case did not come to its end, or the program stopped making sense."""
    played, case = comparison.played, comparison.case
    at = comparison.ended_at
    if comparison.end in (End.REACHED, End.MISFIT) or at >= len(case.trace.operations):
        return
    call = case.trace.operations[at].name
    fault = played.left or played.fault
    source = lines.get(fault.stack, ()) if fault is not None else ()
    words = {
        End.CRASH: (Verdict.RUN_TIME_ERROR, f"{call} crashes ({_signal_words(comparison)})"),
        End.HANG: (Verdict.TIME_LIMIT_EXCEEDED, f"{call} does not come back; it ran into the time limit twice"),
        End.LEFT: (Verdict.RUN_TIME_ERROR, f"{call} ends the whole program ({_left_words(comparison)})"),
        End.STOPPED: (Verdict.RUN_TIME_ERROR, f"the program ends in {call} without a word"),
        End.UNREADABLE: (
            Verdict.WRONG_ANSWER,
            f"{call} leaves structures that nobody can follow; the rest of this case cannot be judged",
        ),
    }
    verdict, message = words[comparison.end]
    yield Symptom(
        operation=at,
        verdict=verdict,
        kind=comparison.end.value,
        finding=_finding(comparison, at, verdict, comparison.end.value, message, source),
    )


def _signal_words(comparison: Comparison) -> str:
    fault = comparison.played.fault
    number = fault.signal if fault is not None else comparison.played.status & 0x7F
    try:
        name = signal.strsignal(number) or signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if fault is not None and number == signal.SIGSEGV and _calls_itself(fault.stack):
        return f"{name}: it calls itself again and again until the stack is full"
    if fault is not None and number == signal.SIGSEGV:
        place = "NULL" if fault.address < 4096 else f"the invalid address {fault.address:#x}"  # noqa: PLR2004 - a page
        return f"{name}: it uses {place} as a pointer"
    return name


def _calls_itself(stack: tuple[int, ...]) -> bool:
    return any(stack.count(address) >= _RECURSION for address in set(stack))


def _left_words(comparison: Comparison) -> str:
    left = comparison.played.left
    return "abort" if left is not None and left.signal == 2 else "exit"  # noqa: PLR2004 - harness.c, enum way


def _frees_and_canaries(comparison: Comparison, lines: Lines) -> Iterator[Symptom]:
    for event in comparison.played.events:
        if event.event is Event.BAD_FREE:
            kind = _FREE_KINDS[event.detail]
            source = lines.get(_stack(event.caller), ())
            message = _FREE_WORDS[kind]
        elif event.event is Event.BROKEN:
            kind = _BROKEN_KINDS[event.detail]
            source = lines.get(_stack(event.allocated_at), ())
            message = _BROKEN_WORDS[kind].format(size=event.size)
            if source:
                message += f" that was made at {source[0]}"
        elif event.event is Event.TOO_SMALL:
            kind = "too-small"
            source = lines.get(_stack(event.allocated_at), ())
            message = f"an allocation of {event.size} bytes is too small for what it holds"
        else:
            continue
        if event.operation < comparison.ended_at or comparison.end is not End.REACHED:
            yield Symptom(
                operation=event.operation,
                verdict=Verdict.MEMORY_ERROR,
                kind=kind,
                finding=_finding(comparison, event.operation, Verdict.MEMORY_ERROR, kind, message, source),
            )


def _leaks(comparison: Comparison, lines: Lines) -> Iterator[Symptom]:
    """Allocations that are left when a case came to its end, one symptom for each line that made them."""
    if not comparison.lost:
        return
    by_line: dict[tuple[SourceLine, ...], list[BlockEvent]] = {}
    for event in comparison.played.events:
        if event.event is Event.LIVE:
            by_line.setdefault(lines.get(_stack(event.allocated_at), ()), []).append(event)
    operations = comparison.case.trace.operations
    whole = _lost_whole(comparison)
    for source, events in list(by_line.items())[:_MOST_LEAK_LINES]:
        first = events[0]
        call = operations[first.allocated_by].name if 0 <= first.allocated_by < len(operations) else "the program"
        total = sum(event.size for event in events)
        where = f" at {source[0]}" if source else ""
        count = "1 allocation" if len(events) == 1 else f"{len(events)} allocations"
        message = f"{count} ({total} bytes) made by {call} (operation {first.allocated_by + 1}){where}: never freed"
        yield Symptom(
            operation=len(operations) - 1,
            verdict=Verdict.MEMORY_LEAK,
            kind="leak-whole" if first.allocated_by in whole else "leak",
            finding=_finding(comparison, len(operations) - 1, Verdict.MEMORY_LEAK, "leak", message, source),
        )


def _lost_whole(comparison: Comparison) -> set[int]:
    """Operations of which everything that they allocated was lost, and that was more than one allocation."""
    lost: dict[int, int] = {}
    for event in comparison.played.events:
        if event.event is Event.LIVE:
            lost[event.allocated_by] = lost.get(event.allocated_by, 0) + 1
    steps = comparison.played.steps
    return {
        number
        for number, count in lost.items()
        if count > 1 and 0 <= number < len(steps) and count >= steps[number].allocations - steps[number].frees
    }


def _valgrind(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    for error in checked.errors:
        comparison = comparisons[error.case]
        last = len(comparison.case.trace.operations) - 1
        leak = error.kind.startswith(LEAK)
        verdict = Verdict.MEMORY_LEAK if leak else Verdict.MEMORY_ERROR
        kind = "leak" if leak else error.kind
        made = f"; the memory was allocated or freed at {error.auxiliary[0]}" if error.auxiliary else ""
        operation = min(error.operation, last)
        what = "memory that was allocated here is never freed" if leak else error.message
        finding = _finding(
            comparison, operation, verdict, kind, f"Valgrind: {what}{made}", error.lines or error.auxiliary
        )
        yield (
            error.case,
            Symptom(operation=operation, verdict=verdict, kind=kind, finding=replace(finding, tool=Tool.VALGRIND)),
        )
    told = {(error.case, error.operation) for error in checked.errors}
    for (case, operation), count in checked.counted.items():
        if (case, operation) in told:
            continue
        comparison = comparisons[case]
        same = next((error for error in checked.errors if not error.kind.startswith(LEAK)), None)
        if same is None:
            continue
        message = f"Valgrind: {same.message} ({count} times; the same line as in another case)"
        finding = _finding(comparison, operation, Verdict.MEMORY_ERROR, same.kind, message, same.lines)
        yield (
            case,
            Symptom(
                operation=operation,
                verdict=Verdict.MEMORY_ERROR,
                kind=same.kind,
                finding=replace(finding, tool=Tool.VALGRIND),
            ),
        )


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
        )
    for symptom in one.symptoms:
        if symptom.finding is not None:
            judged = Judged.LEAK if symptom.verdict is Verdict.MEMORY_LEAK else Judged.MEMORY_ERROR
            yield replace(symptom.finding, rule=rule if symptom is one.cause else lab.rubric.judged(judged))


def _operation(one: CaseFindings) -> Operation:
    assert one.cause is not None
    operations = one.comparison.case.trace.operations
    return operations[min(one.cause.operation, len(operations) - 1)]


def _finding(
    comparison: Comparison, operation: int, verdict: Verdict, kind: str, message: str, source: tuple[SourceLine, ...]
) -> Finding:
    return Finding(
        rule="",  # the rubric's, see _findings
        verdict=verdict,
        kind=kind,
        case=comparison.case.name,
        operation=operation + 1,
        message=message,
        source=source,
    )


def _stack(address: int) -> tuple[int, ...]:
    """A return address as a stack of its own: its call is the instruction before."""
    return (0, address) if address else ()
