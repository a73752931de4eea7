"""Symptoms of memory misuse in a case: wrong releases, broken canaries, leaks, and what a memory checker reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from grader.core.verdict import SourceLine, Tool, Verdict
from grader.judge.symptom import Symptom, finding_of
from grader.runtime.comparison import Comparison, End
from grader.runtime.heap_events import HELD, BlockEvent, Event
from grader.runtime.memory_faults import Checked, MemoryFault
from grader.runtime.source_lines import Lines, stack_of

__all__ = ["checker_symptoms", "known", "leaks", "misuses"]

STOPS_WHEN_CHECKED = "stops-when-checked"
STRAYS_WHEN_CHECKED = "strays-when-checked"
UNSEEN_WHEN_CHECKED = "unseen-when-checked"
_OTHERWISE = {STOPS_WHEN_CHECKED: "goes on by chance", STRAYS_WHEN_CHECKED: "does so in another way"}

_MOST_LEAKS = 4


def known(symptom: Symptom, others: Iterable[Symptom]) -> bool:
    """Whether the memory checker and the grader's own table of allocations report the same leak."""
    return symptom.verdict is Verdict.MEMORY_LEAK and any(
        other.verdict is Verdict.MEMORY_LEAK and _line(other) == _line(symptom) for other in others
    )


def _line(symptom: Symptom) -> list[tuple[str, int]]:
    """The innermost line without its function: a memory checker may not know the names of inlined functions."""
    return [(line.file, line.line) for line in symptom.source[:1]]


def misuses(comparison: Comparison, lines: Lines) -> Iterator[Symptom]:
    """Yield wrong releases, writes outside of allocations or into freed ones, and allocations that are too small."""
    for event in comparison.played.events:
        misuse = event.misuse
        if misuse is None or (event.operation >= comparison.ended_at and comparison.end is End.REACHED):
            continue
        message = misuse.words.format(
            size=event.size,
            number=event.number,
            made=_made(event, comparison, lines),
            freed=_freed(event, comparison, lines),
        )
        at = event.caller if event.event is Event.BAD_FREE else event.allocated_at
        yield Symptom(
            operation=event.operation,
            verdict=Verdict.MEMORY_ERROR,
            kind=misuse.kind,
            explains_state=misuse.explains_state,
            at_allocation=misuse.at_allocation,
            finding=finding_of(
                comparison,
                event.operation,
                verdict=Verdict.MEMORY_ERROR,
                kind=misuse.kind,
                message=message,
                source=lines.get(stack_of(at), ()),
            ),
        )


def _made(event: BlockEvent, comparison: Comparison, lines: Lines) -> str:
    """Say which call made the allocation, and where, in words that begin with a space; "" if that is not known."""
    line = next(iter(lines.get(stack_of(event.allocated_at), ())), None)
    return f" made by {_call(event.allocated_by, comparison)} at {line}" if line is not None else ""


def _freed(event: BlockEvent, comparison: Comparison, lines: Lines) -> str:
    """Say the same about the earlier free."""
    line = next(iter(lines.get(stack_of(event.freed_at), ())), None)
    return f" by {_call(event.freed_by, comparison)} at {line}" if line is not None else ""


def _call(number: int, comparison: Comparison) -> str:
    operations = comparison.case.trace.operations
    return f"{operations[number].name} (operation {number + 1})" if 0 <= number < len(operations) else "the program"


def leaks(comparison: Comparison, lines: Lines) -> Iterator[Symptom]:
    """Yield the allocations that are left at the end of a case, one symptom for each line that made them."""
    if not comparison.lost:
        return
    groups: dict[tuple[tuple[SourceLine, ...], int], list[BlockEvent]] = {}
    for event in comparison.played.events:
        if event.event is Event.LIVE:
            source = lines.get(stack_of(event.allocated_at), ())
            groups.setdefault((source, event.lost_by), []).append(event)
    whole = _lost_whole(comparison)
    some = "at least " if comparison.lost > sum(map(len, groups.values())) else ""  # of very many a few are recorded
    for (source, lost_by), events in list(groups.items())[:_MOST_LEAKS]:
        last = len(comparison.case.trace.operations) - 1
        operation = min(lost_by, last) if lost_by >= 0 else last
        yield Symptom(
            operation=operation,
            verdict=Verdict.MEMORY_LEAK,
            kind="leak-whole" if events[0].allocated_by in whole else "leak",
            finding=finding_of(
                comparison,
                operation,
                verdict=Verdict.MEMORY_LEAK,
                kind="leak",
                message=some + _leak_words(comparison, events, lines),
                source=source,
            ),
        )


def _leak_words(comparison: Comparison, events: Sequence[BlockEvent], lines: Lines) -> str:
    """Say how much is left, where it was made, and what happened to it."""
    first = events[0]
    operations = comparison.case.trace.operations
    count = "1 allocation" if len(events) == 1 else f"{len(events)} allocations"
    made = _made(first, comparison, lines)
    if first.lost_by >= 0:
        fate = f"lost by {_call(first.lost_by, comparison)}: nothing points there any more"
    elif first.lost_by == HELD:
        fate = f"left behind by {operations[-1].name}: a global or static variable of yours still leads there"
    else:
        fate = "never freed"
    return f"{count} ({sum(event.size for event in events)} bytes){made}: {fate}"


def _lost_whole(comparison: Comparison) -> set[int]:
    """Operations that lost everything they allocated, if that was more than one allocation."""
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


def checker_symptoms(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield (case number, symptom) for everything that the memory checker reported."""
    yield from _cut_off(comparisons, checked)
    for error in checked.errors:
        last = len(comparisons[error.case].case.trace.operations) - 1
        yield error.case, _of_error(comparisons[error.case], min(error.operation, last), error, checked.tool)
    yield from _repeated(comparisons, checked)
    yield from _unread(comparisons, checked)
    if checked.kept and not (checked.stopped or checked.hung or checked.unread):  # they have symptoms of their own
        yield _kept_away(comparisons, checked)


def _of_error(comparison: Comparison, operation: int, error: MemoryFault, tool: str) -> Symptom:
    """The symptom of an error at an operation of a case."""
    made = f"; {error.origin} at {error.auxiliary[0]}" if error.auxiliary else ""
    return _checkers(
        comparison,
        operation,
        verdict=Verdict.MEMORY_LEAK if error.leak else Verdict.MEMORY_ERROR,
        kind=error.kind,
        symptom=error.symptom,
        message=f"{tool}: {error.message}{made}",
        source=error.lines or error.auxiliary,
        explains_state=error.explains_state,
    )


def _checkers(
    comparison: Comparison,
    operation: int,
    *,
    verdict: Verdict,
    kind: str,
    message: str,
    source: tuple[SourceLine, ...] = (),
    symptom: str = "",
    explains_state: bool = False,
) -> Symptom:
    """Make a symptom with a finding of the memory checker."""
    finding = finding_of(comparison, operation, verdict=verdict, kind=kind, message=message, source=source)
    return Symptom(
        operation=operation,
        verdict=verdict,
        kind=symptom or kind,
        explains_state=explains_state,
        finding=replace(finding, tool=Tool.MEMORY_CHECKER),
    )


def _cut_off(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield cases that crash, hang or diverge with the checker only."""
    crashed = [(case, at, Verdict.RUN_TIME_ERROR, "crashes", ()) for case, at in checked.stopped.items()]
    hung = [
        (case, at, Verdict.TIME_LIMIT_EXCEEDED, "does not come back", lines)
        for case, (at, lines) in checked.hung.items()
    ]
    diverged = [
        (case, at, Verdict.MEMORY_ERROR, "allocates and frees in one way", ())
        for case, at in checked.diverged.items()
        if case not in checked.stopped and case not in checked.hung
    ]
    for case, operation, verdict, does, lines in (*crashed, *hung, *diverged):
        operations = comparisons[case].case.trace.operations
        at = min(operation, len(operations) - 1)
        kind = STRAYS_WHEN_CHECKED if verdict is Verdict.MEMORY_ERROR else STOPS_WHEN_CHECKED
        message = f"{checked.tool}: {operations[at].name} {does}; without {checked.tool} it {_OTHERWISE[kind]}"
        yield case, _checkers(comparisons[case], at, verdict=verdict, kind=kind, message=message, source=lines)


def _repeated(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield the errors that the checker only counted: it prints an error of the same stack once, but counts each."""
    told = {(error.case, error.operation) for error in checked.errors}
    same = next((error for error in checked.errors if not error.leak), None)
    for case, operation in checked.counted:
        if same is not None and (case, operation) not in told:
            yield case, _of_error(comparisons[case], operation, same, checked.tool)


def _unread(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield (case number, symptom) where a report of the checker could not be read to its end."""
    for (number, operation), why, _ in checked.unread:
        at = min(operation, len(comparisons[number].case.trace.operations) - 1)
        message = f"{checked.tool}: its report on the cases up to this one {why}, so none of them counts as seen"
        verdict, kind = Verdict.MEMORY_ERROR, STRAYS_WHEN_CHECKED
        yield number, _checkers(comparisons[number], at, verdict=verdict, kind=kind, message=message)


def _kept_away(comparisons: Sequence[Comparison], checked: Checked) -> tuple[int, Symptom]:
    """Return the first case that the program kept from the checker without another symptom, with its symptom."""
    number = checked.unchecked[0]
    verdict, kind = Verdict.MEMORY_ERROR, UNSEEN_WHEN_CHECKED
    return number, _checkers(comparisons[number], 0, verdict=verdict, kind=kind, message=checked.coverage)
