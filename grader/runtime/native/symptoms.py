"""The symptoms of C submissions: wrong releases, damage, leaks, and what Valgrind reported, with the lines behind them.

How a case ended is no matter of this module; see `NativePlayed.ending`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from grader.core.difference import COPIED_MEMORY, SHARED_MEMORY, UNFILLED
from grader.core.symptom import Symptom
from grader.core.verdict import SourceLine, Tool, Verdict
from grader.runtime.comparison import Comparison, End
from grader.runtime.native.heap_events import ALLOCATED, DAMAGED, HELD, RELEASED_WRONGLY, BlockEvent, Event
from grader.runtime.native.leaks import HeapUse
from grader.runtime.native.native_played import native_played
from grader.runtime.native.symbolize import Lines, stack_of
from grader.runtime.native.valgrind.memory_faults import Checked, MemoryFault
from grader.runtime.protocol import Culprit, Place

STOPS_WHEN_CHECKED = "stops-when-checked"
STRAYS_WHEN_CHECKED = "strays-when-checked"
UNSEEN_WHEN_CHECKED = "unseen-when-checked"
_OTHERWISE = {STOPS_WHEN_CHECKED: "goes on by chance", STRAYS_WHEN_CHECKED: "does so in another way"}

_MOST_LEAKS = 4


def stacks_of(comparisons: Iterable[Comparison], uses: Iterable[HeapUse]) -> Iterator[tuple[int, ...]]:
    """Yield all stacks whose lines `symptoms` and `culprits` need."""
    for comparison, use in zip(comparisons, uses, strict=True):
        for event in use.events:
            if event.event is Event.UNFILLED and not comparison.deviations:
                continue  # a correct program may leave a table like this, and its line is not needed
            yield stack_of(event.allocated_at)
            yield stack_of(event.freed_at)
            yield stack_of(event.caller)


def symptoms(
    comparisons: Sequence[Comparison], uses: Sequence[HeapUse], lines: Lines, checked: Checked | None
) -> dict[int, list[Symptom]]:
    """Return the symptoms by case; a case without any is left out."""
    by_case = {
        number: [*_untold(comparison, use), *_misuses(comparison, use, lines), *_leaks(comparison, use, lines)]
        for number, (comparison, use) in enumerate(zip(comparisons, uses, strict=True))
        if use.events or use.lost or comparison.deviations
    }
    if checked is not None:
        for number, symptom in _reported(comparisons, checked):
            own = by_case.setdefault(number, [])
            if not _is_known(symptom, own):
                own.append(symptom)
    return {number: own for number, own in by_case.items() if own}


def culprits(
    comparisons: Sequence[Comparison], uses: Sequence[HeapUse], lines: Lines, checked: Checked | None
) -> dict[Place, dict[str, Culprit]]:
    """Return the lines behind differences, by the tags of these."""
    by_place: dict[Place, dict[str, Culprit]] = {}
    for number, (comparison, use) in enumerate(zip(comparisons, uses, strict=True)):
        for deviation in comparison.deviations:
            place = number, deviation.operation
            own = _stores(place, checked) | _allocations(use, deviation.operation, lines)
            if own:
                by_place[place] = own
    return by_place


def _stores(place: Place, checked: Checked | None) -> dict[str, Culprit]:
    """The lines that Valgrind saw storing to shared memory, or copying it."""
    stores = checked.stores.get(place, ()) if checked is not None else ()
    copies = stores or (checked.copies.get(place, ()) if checked is not None else ())
    by_tag = {COPIED_MEMORY: copies, SHARED_MEMORY: stores}
    return {tag: Culprit(lines=own, tool=Tool.MEMORY_CHECKER) for tag, own in by_tag.items() if own}


def _allocations(use: HeapUse, operation: int, lines: Lines) -> dict[str, Culprit]:
    """The lines of this operation's allocations: of those that it must not make, and of those that it must fill."""
    own = [event for event in use.events if event.allocated_by == operation]
    needless = [event for event in own if event.event in (Event.SCRATCH, Event.LIVE)]
    unfilled = [event for event in own if event.event is Event.UNFILLED and event.operation == operation]
    by_tag = {}
    for tag, events in ((ALLOCATED, needless), (UNFILLED, unfilled)):
        line = next(filter(None, (lines.get(stack_of(event.allocated_at), ()) for event in events)), ())
        if line:
            by_tag[tag] = Culprit(lines=line)
    return by_tag


_COUNTED = {RELEASED_WRONGLY: {Event.BAD_FREE}, DAMAGED: {Event.BROKEN, Event.TOO_SMALL}}
"""By the tag of a fault that the harness counts: the events that say more about it."""


def _untold(comparison: Comparison, use: HeapUse) -> Iterator[Symptom]:
    """Yield what the harness counted but did not report: a program may have written into the harness's memory."""
    reported = {event.event for event in use.events}
    for deviation in comparison.deviations:
        for difference in deviation.judgement.differences:
            for tag in _COUNTED.keys() & difference.tags:
                if reported.isdisjoint(_COUNTED[tag]):
                    counted = f"{difference.field}: {difference.actual}"
                    yield _unexplained(
                        deviation.operation, Verdict.MEMORY_ERROR, tag, counted, at_origin=tag == DAMAGED
                    )
    if use.lost and Event.LIVE not in reported:
        last = len(comparison.case.trace.operations) - 1
        lost = _unexplained(last, Verdict.MEMORY_LEAK, "leak", f"allocations never freed: {use.lost_in_words}")
        yield replace(lost, facet="heap", made_by=use.lost_from)


def _unexplained(operation: int, verdict: Verdict, kind: str, counted: str, *, at_origin: bool = False) -> Symptom:
    message = f"{counted}, and nothing says which. Does the program write to memory that is not its own?"
    return Symptom(operation=operation, verdict=verdict, kind=kind, message=message, at_origin=at_origin)


def _is_known(symptom: Symptom, others: Iterable[Symptom]) -> bool:
    """Whether Valgrind and the grader's own table of allocations report the same leak."""
    return symptom.verdict is Verdict.MEMORY_LEAK and any(
        other.verdict is Verdict.MEMORY_LEAK and _line(other) == _line(symptom) for other in others
    )


def _line(symptom: Symptom) -> list[tuple[str, int]]:
    """The innermost line without its function: Valgrind may not know the names of inlined functions."""
    return [(line.file, line.line) for line in symptom.lines[:1]]


def _misuses(comparison: Comparison, use: HeapUse, lines: Lines) -> Iterator[Symptom]:
    """Yield wrong releases, writes outside of allocations or into freed ones, and allocations that are too small."""
    for event in use.events:
        misuse = event.misuse
        if misuse is None or (event.operation >= comparison.ended_at and comparison.end is End.REACHED):
            continue
        at = event.caller if event.event is Event.BAD_FREE else event.allocated_at
        yield Symptom(
            operation=event.operation,
            verdict=Verdict.MEMORY_ERROR,
            kind=misuse.kind,
            message=misuse.words.format(
                size=event.size,
                number=event.number,
                made=_allocation_words(event, comparison, lines),
                freed=_free_words(event, comparison, lines),
            ),
            lines=lines.get(stack_of(at), ()),
            explains_state=misuse.explains_state,
            at_origin=misuse.at_allocation,
        )


def _allocation_words(event: BlockEvent, comparison: Comparison, lines: Lines) -> str:
    """Say which call made the allocation, and where, in words that begin with a space; "" if that is not known."""
    line = next(iter(lines.get(stack_of(event.allocated_at), ())), None)
    return f" made by {_call(event.allocated_by, comparison)} at {line}" if line is not None else ""


def _free_words(event: BlockEvent, comparison: Comparison, lines: Lines) -> str:
    """Say the same about the earlier free."""
    line = next(iter(lines.get(stack_of(event.freed_at), ())), None)
    return f" by {_call(event.freed_by, comparison)} at {line}" if line is not None else ""


def _call(number: int, comparison: Comparison) -> str:
    operations = comparison.case.trace.operations
    return f"{operations[number].name} (operation {number + 1})" if 0 <= number < len(operations) else "the program"


def _leaks(comparison: Comparison, use: HeapUse, lines: Lines) -> Iterator[Symptom]:
    """Yield the allocations that are left at the end of a case, one symptom for each line that made them."""
    if not use.lost:
        return
    groups: dict[tuple[tuple[SourceLine, ...], int], list[BlockEvent]] = {}
    for event in use.events:
        if event.event is Event.LIVE:
            source = lines.get(stack_of(event.allocated_at), ())
            groups.setdefault((source, event.lost_by), []).append(event)
    whole = _lost_whole(comparison, use)
    some = "at least " if use.lost > sum(map(len, groups.values())) else ""  # of very many a few are recorded
    last = len(comparison.case.trace.operations) - 1
    for (source, lost_by), events in list(groups.items())[:_MOST_LEAKS]:
        yield Symptom(
            operation=min(lost_by, last) if lost_by >= 0 else last,
            verdict=Verdict.MEMORY_LEAK,
            kind="leak",
            message=some + _leak_words(comparison, events, lines),
            lines=source,
            detail="leak-whole" if events[0].allocated_by in whole else "",
            facet="heap",
            made_by=use.lost_from,
        )


def _leak_words(comparison: Comparison, events: Sequence[BlockEvent], lines: Lines) -> str:
    """Say how much is left, where it was made, and what happened to it."""
    first = events[0]
    operations = comparison.case.trace.operations
    count = "1 allocation" if len(events) == 1 else f"{len(events)} allocations"
    allocation = _allocation_words(first, comparison, lines)
    if first.lost_by >= 0:
        fate = f"lost by {_call(first.lost_by, comparison)}: nothing points there any more"
    elif first.lost_by == HELD:
        fate = f"left behind by {operations[-1].name}: a global or static variable of yours still leads there"
    else:
        fate = "never freed"
    return f"{count} ({sum(event.size for event in events)} bytes){allocation}: {fate}"


def _lost_whole(comparison: Comparison, use: HeapUse) -> set[int]:
    """Operations that lost everything they allocated, if that was more than one allocation."""
    lost: dict[int, int] = {}
    for event in use.events:
        if event.event is Event.LIVE:
            lost[event.allocated_by] = lost.get(event.allocated_by, 0) + 1
    steps = native_played(comparison).steps
    return {
        number
        for number, count in lost.items()
        if count > 1 and 0 <= number < len(steps) and count >= steps[number].allocations - steps[number].frees
    }


def _reported(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield (case number, symptom) for everything that Valgrind reported."""
    yield from _cut_off(comparisons, checked)
    for error in checked.errors:
        last = len(comparisons[error.case].case.trace.operations) - 1
        yield error.case, _of_error(min(error.operation, last), error, checked.tool)
    yield from _repeated(checked)
    yield from _unread(comparisons, checked)
    if checked.evasion and not (checked.stopped or checked.hung or checked.unread):  # they have symptoms of their own
        yield _kept_away(checked)


def _of_error(operation: int, error: MemoryFault, tool: str) -> Symptom:
    """The symptom of an error at an operation of a case."""
    origin = f"; {error.origin} at {error.auxiliary[0]}" if error.auxiliary else ""
    return Symptom(
        operation=operation,
        verdict=Verdict.MEMORY_LEAK if error.leak else Verdict.MEMORY_ERROR,
        kind=error.kind,
        message=f"{error.message}{origin}",
        lines=error.lines or error.auxiliary,
        tool=Tool.MEMORY_CHECKER,
        by=tool,
        detail=error.symptom,
        explains_state=error.explains_state,
    )


def _checkers(
    operation: int, *, verdict: Verdict, kind: str, message: str, by: str, lines: tuple[SourceLine, ...] = ()
) -> Symptom:
    return Symptom(
        operation=operation,
        verdict=verdict,
        kind=kind,
        message=message,
        lines=lines,
        tool=Tool.MEMORY_CHECKER,
        by=by,
    )


def _cut_off(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield cases that crash, hang or diverge under Valgrind only."""
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
        message = f"{operations[at].name} {does}; without {checked.tool} it {_OTHERWISE[kind]}"
        yield case, _checkers(at, verdict=verdict, kind=kind, message=message, by=checked.tool, lines=lines)


def _repeated(checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield the errors that Valgrind only counted: it prints an error of the same stack once, but counts each."""
    reported = {(error.case, error.operation) for error in checked.errors}
    same = next((error for error in checked.errors if not error.leak), None)
    for case, operation in checked.counted:
        if same is not None and (case, operation) not in reported:
            yield case, _of_error(operation, same, checked.tool)


def _unread(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield (case number, symptom) where a report of Valgrind could not be read to its end."""
    for (number, operation), why, _ in checked.unread:
        at = min(operation, len(comparisons[number].case.trace.operations) - 1)
        message = f"its report on the cases up to this one {why}, so none of them counts as seen"
        verdict, kind = Verdict.MEMORY_ERROR, STRAYS_WHEN_CHECKED
        yield number, _checkers(at, verdict=verdict, kind=kind, message=message, by=checked.tool)


def _kept_away(checked: Checked) -> tuple[int, Symptom]:
    """Return the first case that the program kept from Valgrind without another symptom, with its symptom."""
    by, _, message = checked.coverage.partition(": ")
    verdict, kind = Verdict.MEMORY_ERROR, UNSEEN_WHEN_CHECKED
    return checked.unchecked[0], _checkers(0, verdict=verdict, kind=kind, message=message, by=by)
