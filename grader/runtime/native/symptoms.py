"""The symptoms of C submissions: wrong releases, damage, leaks, and what Valgrind reported, with the lines behind them.

Cases that came to their end with memory never freed run once more, natively. In that run the harness checks after each
operation which allocations can still be reached from the caller's pointers and the program's own writable data. Cases
in which a call that must fail allocated memory also run once more: what the call freed again is not known at the end.

What a case lost is known from the harness's table of allocations, into which a program can store. Valgrind's own record
of them has the last word. `NativePlayed.ending` says how a case ended; that is no symptom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grader.core.judgement import COPIED_MEMORY, SHARED_MEMORY, UNFILLED, Symptom
from grader.core.verdict import SourceLine, Tool, Verdict
from grader.runtime.comparison import Comparison, End
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
from grader.runtime.native.scan.libc_names import refusal
from grader.runtime.native.symbolize import Lines, stack_of
from grader.runtime.native.valgrind.memory_faults import TOOL, Checked, MemoryFault
from grader.runtime.protocol import Culprit, Named, Place
from grader.system.sandbox import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapUse:
    """What became of the allocations of one case."""

    events: Sequence[BlockEvent]
    lost: int = 0
    """The number of allocations that were never freed, when the case reached its end."""
    lost_in_words: str = ""
    """This number in words."""
    lost_from: frozenset[str] = frozenset()
    """The calls that made them; empty: not known."""


def lost_natively(comparison: Comparison) -> int:
    """The number of lost allocations; of very many the harness reports only the number, not each one."""
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
    """Return the events of the cases of which a second run reports more, by case, and its CPU seconds.

    They have `BlockEvent.lost_by` where memory was lost, and `HeapEvent.SCRATCH` where a call that must fail allocated.
    Raises `GraderError` when the grader's side breaks.
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
    """Return what the cases lost, with what only Valgrind reports.

    A case that reached its end lost what was left under Valgrind. What Valgrind lists beyond that was lost in any of
    the cases that it lists: it counts in each of them, because only a program that changes the harness's memory hides
    it.
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
    """The calls that made the allocations that the case reported as left."""
    operations = comparison.case.trace.operations
    makers = (event.allocated_by for event in _live(events))
    return [operations[maker].name for maker in makers if 0 <= maker < len(operations)]


def _allocates_although_refused(comparison: Comparison) -> bool:
    return comparison.end is End.REACHED and any(
        ALLOCATED in difference.tags
        for deviation in comparison.deviations
        for difference in deviation.judgement.differences
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
    """Yield all stacks whose lines `symptoms`, `culprits` and `given_up` need."""
    if any(_gives_up_in(comparison) is not None for comparison in comparisons):
        for comparison in comparisons:
            yield from (stack_of(call.called_at) for call in native_played(comparison).refused)
    for comparison, use in zip(comparisons, uses, strict=True):
        for event in use.events:
            if event.event is HeapEvent.UNFILLED and not comparison.deviations:
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
    needless = [event for event in own if event.event in (HeapEvent.SCRATCH, HeapEvent.LIVE)]
    unfilled = [event for event in own if event.event is HeapEvent.UNFILLED and event.operation == operation]
    by_tag = {}
    for tag, events in ((ALLOCATED, needless), (UNFILLED, unfilled)):
        line = next(filter(None, (lines.get(stack_of(event.allocated_at), ()) for event in events)), ())
        if line:
            by_tag[tag] = Culprit(lines=line)
    return by_tag


def given_up(comparisons: Sequence[Comparison], lines: Lines) -> dict[Place, Named]:
    """Return the refused calls of libc in operations that end badly, or refuse what they must do.

    A call is left out if an operation that is right makes it at the same line.
    """
    calls = [
        (number, call, next(iter(lines.get(stack_of(call.called_at), ())), None))
        for number, comparison in enumerate(comparisons)
        for call in native_played(comparison).refused
    ]
    harmless = {(call.name, line) for number, call, line in calls if call.operation < _first_wrong(comparisons[number])}
    sentences: dict[Place, dict[str, SourceLine | None]] = {}
    for number, call, line in calls:
        if call.operation == _gives_up_in(comparisons[number]) and (call.name, line) not in harmless:
            sentences.setdefault((number, call.operation), {})[refusal(call.name, line)] = line
    return {
        place: Named(lines=tuple(filter(None, by_sentence.values())), sentence=" ".join(by_sentence), leads=True)
        for place, by_sentence in sentences.items()
    }


def _gives_up_in(comparison: Comparison) -> int | None:
    """Return the first operation that goes wrong, if it does not return or refuses what the reference accepts."""
    first = _first_wrong(comparison)
    ended = comparison.ended_at if comparison.end is End.ENDED else None
    return first if first in (ended, comparison.refused) else None


def _first_wrong(comparison: Comparison) -> int:
    """Return the number of operations before the first that goes wrong."""
    return min((deviation.operation for deviation in comparison.deviations), default=comparison.ended_at)


_COUNTED = {RELEASED_WRONGLY: {HeapEvent.BAD_FREE}, DAMAGED: {HeapEvent.BROKEN, HeapEvent.TOO_SMALL}}
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
    if use.lost and HeapEvent.LIVE not in reported:
        last = len(comparison.case.trace.operations) - 1
        lost = _unexplained(last, Verdict.MEMORY_LEAK, "leak", f"allocations never freed: {use.lost_in_words}")
        yield replace(lost, facet="heap", made_by=use.lost_from)


def _unexplained(operation: int, verdict: Verdict, kind: str, counted: str, *, at_origin: bool = False) -> Symptom:
    message = f"{counted}, but there is no record of which ones. Does the program write to memory that is not its own?"
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
    """Say which call did it, and where, in words that begin with a space; "" if that is not known."""
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
    allocation = _place_words(first.allocated_by, first.allocated_at, comparison, lines, done_by="made by")
    if first.lost_by >= 0:
        fate = f"lost by {_call(first.lost_by, comparison)}: nothing points there any more"
    elif first.lost_by == HELD:
        fate = f"left behind by {operations[-1].name}: a global or static variable of yours still leads there"
    else:
        fate = "never freed"
    return f"{count} ({sum(event.size for event in events)} bytes){allocation}: {fate}"


def _lost_whole(comparison: Comparison, use: HeapUse) -> set[int]:
    """Operations that lost everything they allocated, if that was more than one allocation."""
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
    # Valgrind prints an error of the same stack once, but counts each
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
    """Yield the cases that crash, hang or diverge under Valgrind only: the operation, and what it does."""
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
