"""The symptoms of each case by operation: differences, ends, misuse of memory, leaks, a memory checker's reports.

A symptom has its operation and its verdict; case_causes.py finds the rule that it breaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from grader.core.difference import COPIED_MEMORY, SHARED_MEMORY, UNFILLED, Difference
from grader.core.verdict import SourceLine, Verdict
from grader.judge.memory_symptoms import checker_symptoms, known, leaks, misuses
from grader.judge.symptom import Symptom, finding_of
from grader.runtime.comparison import ALLOCATED, DAMAGED, LOST, RELEASED_WRONGLY, Comparison, End
from grader.runtime.heap_events import BlockEvent, Event
from grader.runtime.memory_faults import Checked
from grader.runtime.observation import Ending
from grader.runtime.source_lines import Lines, Place, stack_of

__all__ = ["INVARIANT", "stacks_of", "symptoms"]

INVARIANT = "invariant"
"""Kind of a finding: something about the state that can never be so."""


def stacks_of(comparisons: Iterable[Comparison]) -> Iterator[tuple[int, ...]]:
    """Yield all stacks whose lines `case_findings` needs."""
    for comparison in comparisons:
        for event in comparison.played.events:
            if event.event is Event.UNFILLED and not comparison.deviations:
                continue  # a correct program may leave a table like this, and its line is not needed
            yield stack_of(event.allocated_at)
            yield stack_of(event.freed_at)
            yield stack_of(event.caller)


def symptoms(comparisons: Sequence[Comparison], lines: Lines, checked: Checked | None) -> list[list[Symptom]]:
    """Return the symptoms of every case, in the order of the cases."""
    found = [
        [
            *_differences(comparison, number, lines, checked),
            *_broken(comparison),
            *_endings(comparison),
            *misuses(comparison, lines),
            *leaks(comparison, lines),
        ]
        for number, comparison in enumerate(comparisons)
    ]
    if checked is not None:
        for number, symptom in checker_symptoms(comparisons, checked):
            if not known(symptom, found[number]):
                found[number].append(symptom)
    return found


def _differences(comparison: Comparison, number: int, lines: Lines, checked: Checked | None) -> Iterator[Symptom]:
    allocating = partial(_allocating, made=_made_by(comparison), lines=lines)
    for deviation in comparison.deviations:
        for difference in deviation.judgement.differences:
            if difference.facet == "heap":  # the heap events behind it say more
                yield from _untold(comparison, deviation.operation, difference)
                continue
            yield Symptom(
                operation=deviation.operation,
                verdict=Verdict.WRONG_ANSWER,
                difference=difference,
                judgement=deviation.judgement,
                culprits=_culprits(difference, (number, deviation.operation), checked)
                or allocating(difference, deviation.operation),
            )


_COUNTED = {
    RELEASED_WRONGLY: {Event.BAD_FREE},
    DAMAGED: {Event.BROKEN, Event.TOO_SMALL},
    LOST: {Event.LIVE},
}
"""By the tag of a heap fault that the harness counts: the events that say more about it."""


def _untold(comparison: Comparison, operation: int, difference: Difference) -> Iterator[Symptom]:
    """Yield what the harness counted but did not report: a program may have written into the harness's memory."""
    told = {event.event for event in comparison.played.events}
    for tag in _COUNTED.keys() & difference.tags:
        if told.isdisjoint(_COUNTED[tag]):
            kind, verdict = (tag, Verdict.MEMORY_ERROR) if tag != LOST else ("leak", Verdict.MEMORY_LEAK)
            message = (
                f"{difference.field}: {difference.actual}, and nothing says which. Does the program write to memory "
                "that is not its own?"
            )
            finding = finding_of(comparison, operation, verdict=verdict, kind=kind, message=message, source=())
            unplaced = tag == DAMAGED
            yield Symptom(operation=operation, verdict=verdict, kind=kind, finding=finding, at_allocation=unplaced)


def _culprits(difference: Difference, place: Place, checked: Checked | None) -> tuple[SourceLine, ...]:
    """The lines that the memory checker observed as the origin of a difference in shared memory."""
    if checked is None or SHARED_MEMORY not in difference.tags:
        return ()
    copies = checked.copies if COPIED_MEMORY in difference.tags else {}
    return checked.stores.get(place) or copies.get(place, ())


def _made_by(comparison: Comparison) -> dict[int, list[BlockEvent]]:
    """Group the events by the operation that made the allocation."""
    made: dict[int, list[BlockEvent]] = {}
    for event in comparison.played.events:
        made.setdefault(event.allocated_by, []).append(event)
    return made


def _allocating(
    difference: Difference, operation: int, *, made: Mapping[int, Sequence[BlockEvent]], lines: Lines
) -> tuple[SourceLine, ...]:
    """The line of this operation's allocation behind a difference: one that it must not make, or must fill."""
    events: list[BlockEvent] = []
    if ALLOCATED in difference.tags:
        events = [event for event in made.get(operation, ()) if event.event in (Event.SCRATCH, Event.LIVE)]
    elif UNFILLED in difference.tags:
        own = made.get(operation, ())
        events = [event for event in own if event.event is Event.UNFILLED and event.operation == operation]
    return next(filter(None, (lines.get(stack_of(event.allocated_at), ()) for event in events)), ())


def _endings(comparison: Comparison) -> Iterator[Symptom]:
    """Yield a symptom when the case did not reach its end, or its state could not be followed any more."""
    at, operations = comparison.ended_at, comparison.case.trace.operations
    if comparison.end in (End.REACHED, End.MISFIT, End.UNKNOWN) or at >= len(operations):
        return
    call, later = operations[at].name, comparison.played.ending
    if comparison.end is End.UNREADABLE:
        sentence = (
            f"what the calls before this {call} left cannot be followed, so the rest of the case cannot be judged"
        )
        ending = _by_the_judge(comparison.end, Verdict.WRONG_ANSWER, f"{sentence}: {comparison.unreadable}")
    elif comparison.unjudged:
        sentence = "not compared: what the calls before it did and left behind used up the time for all cases"
        ending = _by_the_judge(comparison.end, Verdict.TIME_LIMIT_EXCEEDED, sentence)
    else:
        sentence = f"the program ends in {call} without a word"
        ending = later or _by_the_judge(comparison.end, Verdict.RUN_TIME_ERROR, sentence)
    finding = finding_of(
        comparison,
        at,
        verdict=ending.verdict,
        kind=ending.kind,
        message=ending.sentence,
        source=ending.lines or (later.lines if later is not None else ()),
    )
    yield Symptom(operation=at, verdict=ending.verdict, kind=ending.detail or ending.kind, finding=finding)


def _by_the_judge(end: End, verdict: Verdict, sentence: str) -> Ending:
    return Ending(kind=end.value, verdict=verdict, sentence=sentence)


def _broken(comparison: Comparison) -> Iterator[Symptom]:
    """Yield what can never be so, at the operation since which it is."""
    for deviation in comparison.deviations:
        for sentence in deviation.judgement.broken:
            verdict, at = Verdict.WRONG_ANSWER, deviation.operation
            finding = finding_of(comparison, at, verdict=verdict, kind=INVARIANT, message=sentence, source=())
            yield Symptom(operation=at, verdict=verdict, kind=INVARIANT, finding=finding)
