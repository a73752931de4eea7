"""Symptoms of memory misuse in a case: bad frees, broken canaries, leaks, and what Valgrind reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from grader.core.verdict import SourceLine, Tool, Verdict
from grader.judge.symptom import Symptom, finding_of
from grader.runtime.comparison import Comparison, End
from grader.runtime.heap_events import HELD, BlockEvent, Event
from grader.runtime.memory_faults import LEAK, UNSET, Checked, MemoryFault
from grader.runtime.source_lines import Lines, stack_of

__all__ = ["AT_ALLOCATION", "FAULTS", "STRAYS_UNDER_VALGRIND", "frees_and_canaries", "known", "leaks", "valgrind"]

_FREE_KINDS = {
    1: "double-free",
    2: "free-inside",
    3: "free-foreign",
    7: "free-pool",
    8: "free-static",
    9: "free-stack",
}

_FREE_WORDS = {
    "double-free": "frees {size} bytes{made} that were already freed{freed}",
    "free-inside": "frees an address inside an allocation of {size} bytes{made}, {number} bytes behind its start",
    "free-foreign": "frees an address that malloc never returned",
    "free-pool": "frees the pool, which the caller owns",
    "free-static": "frees a global or static variable",
    "free-stack": "frees a local variable",
}

_BROKEN_KINDS = {4: "underrun", 5: "overrun", 6: "write-after-free"}

_BROKEN_WORDS = {
    "underrun": "writes before the start of an allocation of {size} bytes{made}",
    "overrun": "writes past the end of an allocation of {size} bytes{made}",
    "write-after-free": "writes into {size} bytes{made} that were already freed{freed}",
}

_SMALL_WORDS = "an allocation of {size} bytes{made} is too small for what it holds: {number} bytes are needed"

STOPS_UNDER_VALGRIND = "stops-under-valgrind"
STRAYS_UNDER_VALGRIND = "strays-under-valgrind"
_OTHERWISE = {STOPS_UNDER_VALGRIND: "goes on by chance", STRAYS_UNDER_VALGRIND: "does so in another way"}

FAULTS = frozenset(
    {
        *(
            "InvalidRead",
            "InvalidWrite",
            "InvalidFree",
            "FreedRead",
            "FreedWrite",
            "double-free",
            "free-inside",
            "free-foreign",
            "free-pool",
        ),
        *("UninitCondition", "UninitValue", "overrun", "underrun", "too-small"),
    }
)
"""Kinds that probably caused a wrong state of the same call."""

AT_ALLOCATION = frozenset({"overrun", "underrun"})
"""Kinds for which only the line that allocated the memory is known, not the line that wrote outside it."""

_MOST_LEAKS = 4


def known(symptom: Symptom, others: Iterable[Symptom]) -> bool:
    """Whether Valgrind and the grader's own table of allocations report the same leak."""
    return symptom.verdict is Verdict.MEMORY_LEAK and any(
        other.verdict is Verdict.MEMORY_LEAK and _line(other) == _line(symptom) for other in others
    )


def _line(symptom: Symptom) -> list[tuple[str, int]]:
    """The innermost line without its function: Valgrind does not know the names of inlined functions."""
    return [(line.file, line.line) for line in symptom.source[:1]]


def frees_and_canaries(comparison: Comparison, lines: Lines) -> Iterator[Symptom]:
    """Yield bad calls of free, writes outside of allocations or into freed ones, and allocations that are too small."""
    for event in comparison.played.events:
        at = event.allocated_at
        if event.event is Event.BAD_FREE:
            kind, at = _FREE_KINDS.get(event.detail, "free-foreign"), event.caller
            words = _FREE_WORDS[kind]
        elif event.event is Event.BROKEN:
            kind = _BROKEN_KINDS.get(event.detail, "overrun")
            words = _BROKEN_WORDS[kind]
        elif event.event is Event.TOO_SMALL:
            kind, words = "too-small", _SMALL_WORDS
        else:
            continue
        message = words.format(
            size=event.size,
            number=event.number,
            made=_made(event, comparison, lines),
            freed=_freed(event, comparison, lines),
        )
        if event.operation < comparison.ended_at or comparison.end is not End.REACHED:
            yield Symptom(
                operation=event.operation,
                verdict=Verdict.MEMORY_ERROR,
                kind=kind,
                finding=finding_of(
                    comparison,
                    event.operation,
                    verdict=Verdict.MEMORY_ERROR,
                    kind=kind,
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
                message=_leak_words(comparison, events, lines),
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


def valgrind(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield (case number, symptom) for everything that Valgrind reported."""
    yield from _cut_off(comparisons, checked)
    for error in checked.errors:
        comparison = comparisons[error.case]
        last = len(comparison.case.trace.operations) - 1
        leak = error.kind.startswith(LEAK)
        verdict = Verdict.MEMORY_LEAK if leak else Verdict.MEMORY_ERROR
        kind = "leak" if leak else error.kind
        made = f"; {_origin(error)} at {error.auxiliary[0]}" if error.auxiliary else ""
        operation = min(error.operation, last)
        what = "memory that was allocated here is never freed" if leak else _what(error)
        finding = finding_of(
            comparison,
            operation,
            verdict=verdict,
            kind=kind,
            message=f"Valgrind: {what}{made}",
            source=error.lines or error.auxiliary,
        )
        yield (
            error.case,
            Symptom(
                operation=operation,
                verdict=verdict,
                kind="leak" if leak else _kind(error),
                finding=replace(finding, tool=Tool.VALGRIND),
            ),
        )
    yield from _repeated(comparisons, checked)


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
        kind = STRAYS_UNDER_VALGRIND if verdict is Verdict.MEMORY_ERROR else STOPS_UNDER_VALGRIND
        finding = finding_of(
            comparisons[case],
            at,
            verdict=verdict,
            kind=kind,
            message=f"Valgrind: {operations[at].name} {does}; without Valgrind it {_OTHERWISE[kind]}",
            source=lines,
        )
        symptom = Symptom(operation=at, verdict=verdict, kind=kind, finding=replace(finding, tool=Tool.VALGRIND))
        yield case, symptom


def _origin(error: MemoryFault) -> str:
    if error.freed:
        return "it was freed"
    return "the value comes from memory allocated" if error.kind.startswith(UNSET) else "the memory was allocated"


def _kind(error: MemoryFault) -> str:
    """The kind of an error; Valgrind has one kind for freed memory and for memory that was never allocated."""
    return error.kind.replace("Invalid", "Freed") if error.freed else error.kind


def _what(error: MemoryFault) -> str:
    """The error in Valgrind's words, or in plainer words."""
    return {"FreedRead": "reads memory that was freed", "FreedWrite": "writes to memory that was freed"}.get(
        _kind(error), error.message
    )


def _repeated(comparisons: Sequence[Comparison], checked: Checked) -> Iterator[tuple[int, Symptom]]:
    """Yield the errors that Valgrind only counted: it prints an error of the same stack once, but counts each one."""
    told = {(error.case, error.operation) for error in checked.errors}
    same = next((error for error in checked.errors if not error.kind.startswith(LEAK)), None)
    for case, operation in checked.counted:
        if same is None or (case, operation) in told:
            continue
        comparison = comparisons[case]
        made = f"; {_origin(same)} at {same.auxiliary[0]}" if same.auxiliary else ""
        message = f"Valgrind: {_what(same)}{made}"
        finding = finding_of(
            comparison, operation, verdict=Verdict.MEMORY_ERROR, kind=same.kind, message=message, source=same.lines
        )
        yield (
            case,
            Symptom(
                operation=operation,
                verdict=Verdict.MEMORY_ERROR,
                kind=_kind(same),
                finding=replace(finding, tool=Tool.VALGRIND),
            ),
        )
