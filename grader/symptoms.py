"""What one case showed, operation by operation: differences, ends, bad frees, broken canaries, leaks, Valgrind.

A symptom knows where it stands and how grave it is; which rule it breaks is said in diagnose.py.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from grader.compare import Comparison, End
from grader.memcheck import LEAK, Checked
from grader.replay import BlockEvent, Event
from grader.verdict import Finding, SourceLine, Tool, Verdict
from reference.model import Difference, Judgement

__all__ = ["Lines", "Symptom", "stacks_of", "symptoms"]

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

STOPS_UNDER_VALGRIND = "stops-under-valgrind"
_MOST_LEAK_LINES = 4

_SI_KERNEL = 0x80  # how Linux reports an address outside the range of all addresses
_RECURSION = 8  # the same return address so often on the stack


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
        """The student's lines, innermost first."""
        return self.finding.source if self.finding is not None else ()


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


def symptoms(comparisons: Sequence[Comparison], lines: Lines, checked: Checked | None) -> list[list[Symptom]]:
    """The symptoms of every case, in the order of the cases."""
    found = [
        [
            *_differences(comparison),
            *_endings(comparison, lines),
            *_frees_and_canaries(comparison, lines),
            *_leaks(comparison, lines),
        ]
        for comparison in comparisons
    ]
    for number, symptom in _valgrind(comparisons, checked) if checked is not None else ():
        if not _known(symptom, found[number]):
            found[number].append(symptom)
    return found


def _known(symptom: Symptom, others: Iterable[Symptom]) -> bool:
    """Valgrind and our own table of allocations tell of the same leak."""
    return symptom.verdict is Verdict.MEMORY_LEAK and any(
        other.verdict is Verdict.MEMORY_LEAK and other.source[:1] == symptom.source[:1] for other in others
    )


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
        End.HANG: (
            Verdict.TIME_LIMIT_EXCEEDED,
            f"{call} does not come back; it ran into the time limit twice",
        ),
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
        kind="crash-wild" if comparison.end is End.CRASH and _is_wild(comparison) else comparison.end.value,
        finding=_finding(comparison, at, verdict=verdict, kind=comparison.end.value, message=message, source=source),
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
    if _is_wild(comparison):
        return f"{name}: it follows a pointer that was never set, or that was freed"
    if fault is not None and number == signal.SIGSEGV:
        place = "NULL" if fault.address < 4096 else f"the invalid address {fault.address:#x}"
        return f"{name}: it uses {place} as a pointer"
    return name


def _is_wild(comparison: Comparison) -> bool:
    """An address that no memory can have: what fresh or freed memory holds, taken as a pointer."""
    fault = comparison.played.fault
    return fault is not None and fault.signal == signal.SIGSEGV and fault.code == _SI_KERNEL


def _calls_itself(stack: tuple[int, ...]) -> bool:
    return any(stack.count(address) >= _RECURSION for address in set(stack))


def _left_words(comparison: Comparison) -> str:
    left = comparison.played.left
    return "abort" if left is not None and left.signal == 2 else "exit"


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
                finding=_finding(
                    comparison, event.operation, verdict=Verdict.MEMORY_ERROR, kind=kind, message=message, source=source
                ),
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
            finding=_finding(
                comparison,
                len(operations) - 1,
                verdict=Verdict.MEMORY_LEAK,
                kind="leak",
                message=message,
                source=source,
            ),
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
    for case, operation in checked.stopped.items():
        at = min(operation, len(comparisons[case].case.trace.operations) - 1)
        call = comparisons[case].case.trace.operations[at].name
        finding = _finding(
            comparisons[case],
            at,
            verdict=Verdict.RUN_TIME_ERROR,
            kind=STOPS_UNDER_VALGRIND,
            message=f"Valgrind: {call} crashes or does not come back; without Valgrind it goes on by chance",
            source=(),
        )
        symptom = Symptom(
            operation=at,
            verdict=Verdict.RUN_TIME_ERROR,
            kind=STOPS_UNDER_VALGRIND,
            finding=replace(finding, tool=Tool.VALGRIND),
        )
        yield case, symptom
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
            comparison,
            operation,
            verdict=verdict,
            kind=kind,
            message=f"Valgrind: {what}{made}",
            source=error.lines or error.auxiliary,
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
        finding = _finding(
            comparison, operation, verdict=Verdict.MEMORY_ERROR, kind=same.kind, message=message, source=same.lines
        )
        yield (
            case,
            Symptom(
                operation=operation,
                verdict=Verdict.MEMORY_ERROR,
                kind=same.kind,
                finding=replace(finding, tool=Tool.VALGRIND),
            ),
        )


def _finding(
    comparison: Comparison,
    operation: int,
    *,
    verdict: Verdict,
    kind: str,
    message: str,
    source: tuple[SourceLine, ...],
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
