"""The symptoms of each case by operation: differences, ends, misuse of memory, leaks, a memory checker's reports.

A symptom has its operation and its verdict; case_causes.py finds the rule that it breaks.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from grader.core.verdict import SourceLine, Verdict
from grader.judge.memory_symptoms import checker_symptoms, known, leaks, misuses
from grader.judge.symptom import Symptom, finding_of
from grader.runtime.comparison import ALLOCATED, DAMAGED, LOST, RELEASED_WRONGLY, Comparison, End
from grader.runtime.heap_events import BlockEvent, Event
from grader.runtime.memory_faults import Checked
from grader.runtime.source_lines import Lines, Place, stack_of
from reference.model import COPIED_MEMORY, SHARED_MEMORY, UNFILLED, Difference

__all__ = ["stacks_of", "symptoms"]

_SI_KERNEL = 0x80  # the si_code by which Linux reports an address outside the range of all addresses

_WAYS = {1: "exit", 2: "_exit", 3: "_Exit", 4: "quick_exit", 5: "abort"}
_JUMP = 6  # the last of calls.c's enum way


def stacks_of(comparisons: Iterable[Comparison]) -> Iterator[tuple[int, ...]]:
    """Yield all stacks whose lines `case_findings` needs."""
    for comparison in comparisons:
        played = comparison.played
        for fault in (played.fault, played.left):
            if fault is not None:
                yield fault.place
        for event in played.events:
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
            *_endings(comparison, lines),
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


def _endings(comparison: Comparison, lines: Lines) -> Iterator[Symptom]:
    """Yield a symptom when the case did not reach its end, or its state could not be followed any more."""
    played, case = comparison.played, comparison.case
    at = comparison.ended_at
    if comparison.end in (End.REACHED, End.MISFIT) or at >= len(case.trace.operations):
        return
    call = case.trace.operations[at].name
    fault = played.left or played.fault
    source = lines.get(fault.place, ()) if fault is not None else ()
    words = {
        End.CRASH: (Verdict.RUN_TIME_ERROR, f"{call} crashes ({_signal_words(comparison)})"),
        End.HANG: (
            Verdict.TIME_LIMIT_EXCEEDED,
            f"{call} does not come back within its time limit",
        ),
        End.NO_TIME: (Verdict.TIME_LIMIT_EXCEEDED, _no_time_words(comparison)),
        End.LEFT: (Verdict.RUN_TIME_ERROR, f"{call} {_left_words(comparison)}"),
        End.STOPPED: (Verdict.RUN_TIME_ERROR, _stopped_words(comparison, call)),
        End.UNREADABLE: (
            Verdict.WRONG_ANSWER,
            (
                f"what the calls before this {call} left cannot be followed, so the rest of the case cannot be judged:"
                f" {comparison.unreadable}"
            ),
        ),
    }
    verdict, message = words[comparison.end]
    kind = comparison.end.value
    if comparison.end is End.CRASH and fault is not None and fault.calls_itself:
        kind = "crash-recursion"
    elif comparison.end is End.CRASH and _is_wild(comparison):
        kind = "crash-wild"
    elif comparison.end is End.LEFT and fault is not None and fault.signal == _JUMP:
        kind = "left-jump"
    yield Symptom(
        operation=at,
        verdict=verdict,
        kind=kind,
        finding=finding_of(comparison, at, verdict=verdict, kind=comparison.end.value, message=message, source=source),
    )


def _no_time_words(comparison: Comparison) -> str:
    if comparison.unjudged:
        return "not compared: what the calls before it did and left behind used up the time for all cases"
    done = "finished" if comparison.ended_at else "run"
    return f"not {done}: calls that are far too slow used up the time for all cases"


def _stopped_words(comparison: Comparison, call: str) -> str:
    if not comparison.played.overflow:
        return f"the program ends in {call} without a word"
    return f"the grader stops the program in or before {call}: {comparison.played.overflow}"


def _signal_words(comparison: Comparison) -> str:
    fault = comparison.played.fault
    number = fault.signal if fault is not None else comparison.played.status & 0x7F
    try:
        name = signal.strsignal(number) or signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if fault is not None and number == signal.SIGSEGV and fault.calls_itself:
        return f"{name}: it calls itself again and again until the stack is full"
    if _is_wild(comparison):
        return f"{name}: it follows a pointer that was never set, was freed, or was read beyond an end"
    if fault is not None and number == signal.SIGSEGV:
        place = "NULL" if fault.address < 4096 else "a pointer to an address where no memory is"
        return f"{name}: it follows {place}"
    return name


def _is_wild(comparison: Comparison) -> bool:
    """Whether the address cannot exist: the content of fresh or freed memory was used as a pointer."""
    fault = comparison.played.fault
    return fault is not None and fault.signal == signal.SIGSEGV and fault.code == _SI_KERNEL


def _left_words(comparison: Comparison) -> str:
    left = comparison.played.left
    if left is None:
        return ""
    if left.signal == _JUMP:
        return "jumps with longjmp to a call that has already returned"
    way = _WAYS.get(left.signal, "exit")
    return f"ends the whole program: it calls {way}({left.code if way != 'abort' else ''})"
