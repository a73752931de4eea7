"""The symptoms of C submissions: wrong releases, damage, leaks and Valgrind's reports, with the lines that caused them.

Cases that came to their end and left memory unfreed run once more, natively. In that run the harness checks after each
operation which allocations can still be reached from the caller's pointers and the program's own writable data. Cases
in which a call that must fail allocated memory also run once more: only this run reports what the call freed again.

The harness's table of allocations shows what a case lost, but a program can store into this table. So Valgrind's own
record of allocations decides. `NativePlayed.ending` says how a case ended; that is no symptom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grader.core.judgement import COPIED_MEMORY, SHARED_MEMORY, UNFILLED, Symptom
from grader.core.verdict import SourceLine, Tool, Verdict
from grader.runtime.native.compile.libc_names import refusal
from grader.runtime.native.native_played import (
    ALLOCATED,
    DAMAGED,
    HELD,
    RELEASED_WRONGLY,
    BlockEvent,
    HeapEvent,
    NativePlayed,
    native_played,
)
from grader.runtime.native.project import Driver, NativeProgram
from grader.runtime.native.replay import WATCH, replay
from grader.runtime.native.symbolize import Lines, stack_of
from grader.runtime.native.valgrind.memory_faults import TOOL, Checked, MemoryFault
from grader.runtime.protocol import Comparison, End, Origin, Place
from grader.system.sandbox import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapUse:
    """What became of the allocations of one case."""

    events: Sequence[BlockEvent]
    lost: int = 0
    """The number of allocations that were never freed, if the case reached its end."""
    lost_in_words: str = ""
    """The number `lost` in words."""
    lost_from: frozenset[str] = frozenset()
    """The calls that made the lost allocations; empty if they are not known."""


def lost_natively(comparison: Comparison) -> int:
    """Return the number of lost allocations. If there are very many, the harness does not report each one."""
    played = native_played(comparison)
    return max(played.live, len(_live(played.events))) if played.complete and not comparison.unjudged else 0


def heap_use(comparison: Comparison, traced: Sequence[BlockEvent] | None = None) -> HeapUse:
    """Return what became of a case's allocations; `traced` are its events as `find_lost` completed them."""
    lost = lost_natively(comparison)
    events = native_played(comparison).events if traced is None else traced
    return HeapUse(events=events, lost=lost, lost_in_words=str(lost), lost_from=frozenset(_calls(comparison, events)))


def find_lost(
    work: Workspace, program: NativeProgram, comparisons: Sequence[Comparison], driver: Driver
) -> tuple[dict[int, list[BlockEvent]], float]:
    """Run the cases with lost or needless allocations again. Return their events by case, and the run's CPU seconds.

    The events have `BlockEvent.lost_by` for lost memory, and `HeapEvent.SCRATCH` for memory that a call that must fail
    allocated and freed. Cases in which the run diverged are left out. Raises `GraderError` when the grader breaks.
    """
    watched = [WATCH if _allocates_although_refused(comparison) else 0 for comparison in comparisons]
    numbers = [number for number, comparison in enumerate(comparisons) if watched[number] or lost_natively(comparison)]
    if not numbers:
        return {}, 0.0
    cases = [comparisons[number].case for number in numbers]
    failing = [watched[number] for number in numbers]
    again = replay(work, program, cases, driver=driver, failing=failing, tracing=True)
    pairs = zip(numbers, again.played, strict=True)
    traced = {number: _completed_events(native_played(comparisons[number]), played) for number, played in pairs}
    return {number: events for number, events in traced.items() if events is not None}, again.cpu_seconds


def confirm_lost(comparisons: Sequence[Comparison], uses: Sequence[HeapUse], checked: Checked) -> tuple[HeapUse, ...]:
    """Return what the cases lost, with the allocations that only the run under Valgrind shows.

    A case that reached its end lost at least what was left under Valgrind. Valgrind also lists unfreed memory for a
    group of cases. What the harness did not report of such a list counts in each case of the group for which no loss is
    known, because only a program that changes the harness's memory can hide it.
    """
    confirmed = list(uses)
    ended = {number for number, comparison in enumerate(comparisons) if comparison.end is End.REACHED}
    for case, count in checked.left.items():
        if count > confirmed[case].lost and case in ended:
            confirmed[case] = replace(confirmed[case], lost=count, lost_in_words=str(count))
    for unfreed in checked.unfreed:
        reported: Counter[str] = Counter()
        for case in unfreed.cases:
            reported.update(_calls(comparisons[case], confirmed[case].events))
        others = Counter(unfreed.by_function) - reported
        for case in ended.intersection(unfreed.cases):
            if unfreed.unreported and not confirmed[case].lost:
                lost_in_words = f"{unfreed.unreported} in {len(unfreed.cases)} cases"
                confirmed[case] = replace(confirmed[case], lost=unfreed.unreported, lost_in_words=lost_in_words)
            calls = others.keys() & {operation.name for operation in comparisons[case].case.trace.operations}
            if calls and confirmed[case].lost:  # the name of a helper says nothing about the call
                confirmed[case] = replace(confirmed[case], lost_from=confirmed[case].lost_from | calls)
    return tuple(confirmed)


def _calls(comparison: Comparison, events: Sequence[BlockEvent]) -> list[str]:
    """Return the calls that made the allocations which the harness reported as left."""
    operations = comparison.case.trace.operations
    makers = (event.allocated_by for event in _live(events))
    return [operations[maker].name for maker in makers if 0 <= maker < len(operations)]


def _allocates_although_refused(comparison: Comparison) -> bool:
    return comparison.end is End.REACHED and any(
        ALLOCATED in difference.tags for judgement in comparison.wrong.values() for difference in judgement.differences
    )


def _completed_events(played: NativePlayed, again: NativePlayed) -> list[BlockEvent] | None:
    """Return the events with what the second run reports of the same allocations; None if that run diverged."""
    known, traced = _live(played.events), _live(again.events)
    if [_block(event) for event in known] != [_block(event) for event in traced]:
        return None
    others = [event for event in played.events if event.event is not HeapEvent.LIVE]
    scratch = [event for event in again.events if event.event is HeapEvent.SCRATCH]
    return [*others, *traced, *scratch]


def _live(events: Sequence[BlockEvent]) -> list[BlockEvent]:
    return [event for event in events if event.event is HeapEvent.LIVE]


def _block(event: BlockEvent) -> tuple[int, int, int]:
    return event.allocated_by, event.size, event.allocated_at


STOPS_WHEN_CHECKED = "stops-when-checked"
STRAYS_WHEN_CHECKED = "strays-when-checked"
UNSEEN_WHEN_CHECKED = "unseen-when-checked"
_OTHERWISE = {STOPS_WHEN_CHECKED: "goes on by chance", STRAYS_WHEN_CHECKED: "does so in another way"}

_MOST_LEAKS = 4


def stacks_of(comparisons: Sequence[Comparison], uses: Iterable[HeapUse]) -> Iterator[tuple[int, ...]]:
    """Yield all stacks whose lines `symptoms`, `origins` and `given_up` need."""
    if any(_gives_up_in(comparison) is not None for comparison in comparisons):
        for comparison in comparisons:
            yield from (stack_of(call.called_at) for call in native_played(comparison).refused)
    for comparison, use in zip(comparisons, uses, strict=True):
        for event in use.events:
            if event.event is HeapEvent.UNFILLED and not comparison.wrong:
                continue  # a correct program may leave such a table; its line is not needed
            yield stack_of(event.allocated_at)
            yield stack_of(event.freed_at)
            yield stack_of(event.caller)


def symptoms(
    comparisons: Sequence[Comparison], uses: Sequence[HeapUse], lines: Lines, checked: Checked | None
) -> dict[int, list[Symptom]]:
    """Return the symptoms by case; a case without any is left out."""
    by_case = {
        number: [*_unreported(comparison, use), *_misuses(comparison, use, lines), *_leaks(comparison, use, lines)]
        for number, (comparison, use) in enumerate(zip(comparisons, uses, strict=True))
        if use.events or use.lost or comparison.wrong
    }
    if checked is not None:
        for number, symptom in _reported(comparisons, checked):
            own = by_case.setdefault(number, [])
            if not _is_known(symptom, own):
                own.append(symptom)
    return {number: own for number, own in by_case.items() if own}


def origins(
    comparisons: Sequence[Comparison], uses: Sequence[HeapUse], lines: Lines, checked: Checked | None
) -> dict[Place, dict[str, Origin]]:
    """Return the lines that caused differences, by place and by tag of the difference."""
    by_place = {
        (number, operation): _stores((number, operation), checked) | _allocations(use, operation, lines)
        for number, (comparison, use) in enumerate(zip(comparisons, uses, strict=True))
        for operation in comparison.wrong
    }
    return {place: by_tag for place, by_tag in by_place.items() if by_tag}


def _stores(place: Place, checked: Checked | None) -> dict[str, Origin]:
    """Return the lines that stored to shared memory or copied it, as Valgrind reported them."""
    stores = checked.stores.get(place, ()) if checked is not None else ()
    copies = stores or (checked.copies.get(place, ()) if checked is not None else ())
    by_tag = {COPIED_MEMORY: copies, SHARED_MEMORY: stores}
    return {tag: Origin(lines=own, tool=Tool.MEMORY_CHECKER) for tag, own in by_tag.items() if own}


def _allocations(use: HeapUse, operation: int, lines: Lines) -> dict[str, Origin]:
    """Return the lines of allocations that this operation must not make, and of those that it must initialise."""
    own = [event for event in use.events if event.allocated_by == operation]
    needless = [event for event in own if event.event in (HeapEvent.SCRATCH, HeapEvent.LIVE)]
    unfilled = [event for event in own if event.event is HeapEvent.UNFILLED and event.operation == operation]
    by_tag = {}
    for tag, events in ((ALLOCATED, needless), (UNFILLED, unfilled)):
        line = next(filter(None, (lines.get(stack_of(event.allocated_at), ()) for event in events)), ())
        if line:
            by_tag[tag] = Origin(lines=line)
    return by_tag


def given_up(comparisons: Sequence[Comparison], lines: Lines) -> dict[Place, Origin]:
    """Return the refused calls of libc in operations that end badly, or that refuse although they must work.

    A call is left out if an operation that is right makes the same call at the same line.
    """
    calls = [
        (number, call, next(iter(lines.get(stack_of(call.called_at), ())), None))
        for number, comparison in enumerate(comparisons)
        for call in native_played(comparison).refused
    ]
    harmless = {(call.name, line) for number, call, line in calls if call.operation < comparisons[number].first_wrong}
    sentences: dict[Place, dict[str, SourceLine | None]] = {}
    for number, call, line in calls:
        if call.operation == _gives_up_in(comparisons[number]) and (call.name, line) not in harmless:
            sentences.setdefault((number, call.operation), {})[refusal(call.name, line)] = line
    return {
        place: Origin(lines=tuple(filter(None, by_sentence.values())), sentence=" ".join(by_sentence), leads=True)
        for place, by_sentence in sentences.items()
    }


def _gives_up_in(comparison: Comparison) -> int | None:
    """Return the first operation that goes wrong, if it does not return or refuses what the reference accepts."""
    first = comparison.first_wrong
    ended = comparison.ended_at if comparison.end is End.ENDED else None
    return first if first in (ended, comparison.refused) else None


_COUNTED = {RELEASED_WRONGLY: {HeapEvent.BAD_FREE}, DAMAGED: {HeapEvent.BROKEN, HeapEvent.TOO_SMALL}}
"""The events that say more about a fault that the harness counts, by the tag of the fault."""


def _unreported(comparison: Comparison, use: HeapUse) -> Iterator[Symptom]:
    """Yield what the harness counted but did not report: the program may have written into the harness's memory."""
    reported = {event.event for event in use.events}
    for number, judgement in comparison.wrong.items():
        for difference in judgement.differences:
            for tag in _COUNTED.keys() & difference.tags:
                if reported.isdisjoint(_COUNTED[tag]):
                    counted = f"{difference.field}: {difference.actual}"
                    yield _unexplained(number, Verdict.MEMORY_ERROR, tag, counted, at_origin=tag == DAMAGED)
    if use.lost and HeapEvent.LIVE not in reported:
        last = len(comparison.case.trace.operations) - 1
        lost = _unexplained(last, Verdict.MEMORY_LEAK, "leak", f"allocations never freed: {use.lost_in_words}")
        yield replace(lost, facet="heap", made_by=use.lost_from)


def _unexplained(operation: int, verdict: Verdict, kind: str, counted: str, *, at_origin: bool = False) -> Symptom:
    message = f"{counted}, but there is no record of which ones. Does the program write to memory that is not its own?"
    return Symptom(operation=operation, verdict=verdict, kind=kind, message=message, at_origin=at_origin)


def _is_known(symptom: Symptom, others: Iterable[Symptom]) -> bool:
    """Return whether the grader's own table of allocations reports the same leak as Valgrind."""
    return symptom.verdict is Verdict.MEMORY_LEAK and any(
        other.verdict is Verdict.MEMORY_LEAK and _line(other) == _line(symptom) for other in others
    )


def _line(symptom: Symptom) -> list[tuple[str, int]]:
    """Return the innermost line without its function: Valgrind may not know the names of inlined functions."""
    return [(line.file, line.line) for line in symptom.lines[:1]]


def _misuses(comparison: Comparison, use: HeapUse, lines: Lines) -> Iterator[Symptom]:
    """Yield wrong releases, writes outside of allocations or into freed ones, and allocations that are too small."""
    for event in use.events:
        misuse = event.misuse
        if misuse is None or (event.operation >= comparison.ended_at and comparison.end is End.REACHED):
            continue
        at = event.caller if event.event is HeapEvent.BAD_FREE else event.allocated_at
        yield Symptom(
            operation=event.operation,
            verdict=Verdict.MEMORY_ERROR,
            kind=misuse.kind,
            message=misuse.words.format(
                size=event.size,
                number=event.number,
                made=_place_words(event.allocated_by, event.allocated_at, comparison, lines, done_by="made by"),
                freed=_place_words(event.freed_by, event.freed_at, comparison, lines, done_by="by"),
            ),
            lines=lines.get(stack_of(at), ()),
            explains_state=misuse.explains_state,
            at_origin=misuse.at_allocation,
        )


def _place_words(number: int, address: int, comparison: Comparison, lines: Lines, *, done_by: str) -> str:
    """Say which call made or freed the memory, and where, with a space before it; "" if the line is unknown."""
    line = next(iter(lines.get(stack_of(address), ())), None)
    return f" {done_by} {_call(number, comparison)} at {line}" if line is not None else ""


def _call(number: int, comparison: Comparison) -> str:
    operations = comparison.case.trace.operations
    return f"{operations[number].name} (operation {number + 1})" if 0 <= number < len(operations) else "the program"


def _leaks(comparison: Comparison, use: HeapUse, lines: Lines) -> Iterator[Symptom]:
    """Yield the allocations that are left at the end of a case, one symptom for each line that made them."""
    if not use.lost:
        return
    groups: dict[tuple[tuple[SourceLine, ...], int], list[BlockEvent]] = {}
    for event in _live(use.events):
        source = lines.get(stack_of(event.allocated_at), ())
        groups.setdefault((source, event.lost_by), []).append(event)
    whole = _lost_whole(comparison, use)
    some = "at least " if use.lost > sum(map(len, groups.values())) else ""  # not all are recorded if there are many
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
    """Say how much memory is left, where it was allocated, and what happened to it."""
    first = events[0]
    operations = comparison.case.trace.operations
    count = "1 allocation" if len(events) == 1 else f"{len(events)} allocations"
    allocation = _place_words(first.allocated_by, first.allocated_at, comparison, lines, done_by="made by")
    if first.lost_by >= 0:
        fate = f"lost by {_call(first.lost_by, comparison)}: nothing points there any more"
    elif first.lost_by == HELD:
        fate = f"left behind by {operations[-1].name}: a global or static variable of yours still leads there"
    else:
        fate = "never freed"
    return f"{count} ({sum(event.size for event in events)} bytes){allocation}: {fate}"


def _lost_whole(comparison: Comparison, use: HeapUse) -> set[int]:
    """Return the operations that lost everything that they allocated, if that was more than one allocation."""
    lost = Counter(event.allocated_by for event in _live(use.events))
    steps = native_played(comparison).steps
    return {
        number
        for number, count in lost.items()
        if count > 1 and 0 <= number < len(steps) and count >= steps[number].allocations - steps[number].frees
    }


_OF_CHECKER = partial(Symptom, tool=Tool.MEMORY_CHECKER, by=TOOL)


def _reported(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield (case number, symptom) for everything that Valgrind reported."""
    last = [len(comparison.case.trace.operations) - 1 for comparison in comparisons]
    for case, operation, verdict, does, lines in _cut_off(checked):
        at = min(operation, last[case])
        kind = STRAYS_WHEN_CHECKED if verdict is Verdict.MEMORY_ERROR else STOPS_WHEN_CHECKED
        call = comparisons[case].case.trace.operations[at].name
        message = f"{call} {does}; without {TOOL} it {_OTHERWISE[kind]}"
        yield case, _OF_CHECKER(operation=at, verdict=verdict, kind=kind, message=message, lines=lines)
    for error in checked.errors:
        yield error.case, _of_error(min(error.operation, last[error.case]), error)
    # Valgrind counts each error, but prints errors with the same stack once
    printed = {(error.case, error.operation) for error in checked.errors}
    same = next((error for error in checked.errors if not error.leak), None)
    for place in checked.counted:
        if same is not None and place not in printed:
            yield place[0], _of_error(place[1], same)
    for (case, operation), why, _ in checked.unread:
        message = f"its report on the cases up to this one {why}, so none of them counts as seen"
        verdict, kind = Verdict.MEMORY_ERROR, STRAYS_WHEN_CHECKED
        yield case, _OF_CHECKER(operation=min(operation, last[case]), verdict=verdict, kind=kind, message=message)
    if checked.evasion and not (checked.stopped or checked.hung or checked.unread):  # they have symptoms of their own
        by, _, message = checked.coverage.partition(": ")
        verdict, kind = Verdict.MEMORY_ERROR, UNSEEN_WHEN_CHECKED
        yield checked.unchecked[0], _OF_CHECKER(operation=0, verdict=verdict, kind=kind, message=message, by=by)


def _cut_off(checked: Checked) -> Iterator[tuple[int, int, Verdict, str, tuple[SourceLine, ...]]]:
    """Yield (case, operation, verdict, what it does, lines) of cases that crash, hang or diverge only in Valgrind."""
    for case, at in checked.stopped.items():
        yield case, at, Verdict.RUN_TIME_ERROR, "crashes", ()
    for case, (at, lines) in checked.hung.items():
        yield case, at, Verdict.TIME_LIMIT_EXCEEDED, "does not come back", lines
    for case, at in checked.diverged.items():
        if case not in checked.stopped and case not in checked.hung:
            yield case, at, Verdict.MEMORY_ERROR, "allocates and frees in one way", ()


def _of_error(operation: int, error: MemoryFault) -> Symptom:
    """Return the symptom of an error at an operation of a case."""
    origin = f"; {error.origin} at {error.auxiliary[0]}" if error.auxiliary else ""
    return _OF_CHECKER(
        operation=operation,
        verdict=Verdict.MEMORY_LEAK if error.leak else Verdict.MEMORY_ERROR,
        kind=error.kind,
        message=f"{error.message}{origin}",
        lines=error.lines or error.auxiliary,
        detail=error.symptom,
        explains_state=error.explains_state,
    )
