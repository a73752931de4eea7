"""Find the line of a fault: the `return` that a call took, or the store that left a wrong value.

The graded program does not report that. So the file is built once more, not optimized, so that it reports each block of
code and each store (harness/lines.c). The cases that went wrong with no line known are played on that build. Where it
leaves another state than the graded program, its report is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.core.difference import STILL_EMPTY, Difference
from grader.core.verdict import Visibility
from grader.runtime.native.call_path import before_crash, return_taken
from grader.runtime.native.driver import Driver
from grader.runtime.native.heap_events import ALLOCATED, BlockEvent, Event
from grader.runtime.native.native_played import NativePlayed
from grader.runtime.native.native_program import native_program
from grader.runtime.native.replay import replay
from grader.runtime.native.symbolize import Lines, source_lines, stack_of
from grader.runtime.protocol import Built, Named, Place, Unplaced
from grader.system.sandbox import Workspace

_MOST_CASES = 400
_MOST_OF_PATH = 512
"""The most addresses of a path; lines.c sends no more."""
_WORD, _INT = struct.Struct("<Q"), struct.Struct("<i")
_NO_WORD = 0
"""A word of the record that is not the student's."""
_Store = tuple[int, int]
"""The address of a storing instruction, and the value that it stored."""


@dataclass(frozen=True, slots=True)
class _Report:
    """What a build that reports lines reported of one case."""

    fault: Unplaced
    way: tuple[int, ...]
    """The addresses of the last blocks of code that the call ran; between them where it entered and left functions."""
    stores: Mapping[int, int]
    """By word of the record, the address of the last instruction in the call that stored to it; 0 for memory that the
    call allocated, and for `_NO_WORD` where not all stores are known."""
    used: BlockEvent | None
    """The call's first use of freed memory."""


def find_lines(
    work: Workspace,
    unplaced: Sequence[Unplaced],
    *,
    driver: Driver,
    build: Callable[[Workspace], Built],
    source: bytes,
) -> tuple[dict[Place, Named], float]:
    """Return the lines by case and operation, and the CPU seconds used.

    Raises `GraderError` when the grader's side breaks. What the program reports raises nothing.
    """
    faults = _selected_faults(unplaced)
    if not faults or work.budget.empty:
        return {}, 0.0
    built = build(work)
    if built.program is None:
        return {}, built.cpu_seconds
    program = native_program(built.program)
    replayed = replay(
        work,
        program,
        [fault.comparison.case for fault in faults],
        driver=driver,
        failing=[fault.operation for fault in faults],
        lines=True,
    )
    reports = [report for report in map(_report_of, faults, replayed.played) if report is not None]
    stacks = [stack_of(address) for report in reports for address in _addresses(report)]
    lines = source_lines(work, program, stacks)
    text = source.decode(errors="replace").split("\n")
    right = _right_stores(reports, driver)
    places = [(report.fault.case, report.fault.operation) for report in reports]
    named = [_named(report, lines, driver, text, right=right) for report in reports]
    return dict(zip(places, named, strict=True)), built.cpu_seconds + replayed.cpu_seconds


def _selected_faults(unplaced: Sequence[Unplaced]) -> list[Unplaced]:
    """Choose operations to look at; of each cause first those that a report would show: public, plain, short."""
    groups: dict[str, list[Unplaced]] = {}
    for fault in unplaced:
        if fault.difference is not None or _ended(fault):
            groups.setdefault(fault.group, []).append(fault)
    ranked = [(rank, fault) for members in groups.values() for rank, fault in enumerate(sorted(members, key=_place))]
    ranked.sort(key=lambda pair: (pair[0], pair[1].case))
    return [fault for _, fault in ranked[:_MOST_CASES]]


def _place(fault: Unplaced) -> tuple[bool, bool, int]:
    case = fault.comparison.case
    return case.visibility is Visibility.HIDDEN, not fault.plain, len(case.trace.operations)


def _ended(fault: Unplaced) -> bool:
    """Whether the call crashed. A call that hangs would use all its time once more, and its line is known."""
    return fault.kind in ("crash", "crash-wild")


def _addresses(report: _Report) -> Iterator[int]:
    yield from report.way
    yield from report.stores.values()
    if report.used is not None:
        yield from (report.used.caller, report.used.freed_at)


def _same(fault: Unplaced, played: NativePlayed) -> bool:
    """Whether the call left the same record as in the graded program."""
    at = fault.operation
    if _ended(fault):
        return len(played.steps) == at
    if played.lines is None:
        return False
    steps = fault.comparison.played.steps
    return at < min(len(played.steps), len(steps)) and played.steps[at].record == steps[at].record


def _report_of(fault: Unplaced, played: NativePlayed) -> _Report | None:
    """Return what was reported of the case; None if the call left another record, or the harness did not send this."""
    if not _same(fault, played):
        return None
    words = 0 if _ended(fault) else len(played.steps[fault.operation].record) // _INT.size
    report = _decoded(played.lines, words) if played.lines is not None else ((), {})
    if report is None:
        return None
    used = (event for event in played.events if event.event is Event.USED_AFTER_FREE)
    return _Report(
        fault,
        way=report[0],
        stores=report[1],
        used=next((event for event in used if event.operation == fault.operation), None),
    )


def _decoded(body: bytes, record_words: int) -> tuple[tuple[int, ...], Mapping[int, int]] | None:
    """Return path and stores of a LINES frame; None for a body that the harness did not send.

    Student code can send frames of its own: of a longer path, or with stores to words that the record does not have.
    """
    if not body or len(body) % _WORD.size:
        return None
    length, *words = (word for (word,) in _WORD.iter_unpack(body))
    numbers, addresses = words[length::2], words[length + 1 :: 2]
    if length > min(len(words), _MOST_OF_PATH) or len(numbers) != len(addresses):
        return None
    if any(number >= record_words for number in numbers):
        return None
    return tuple(words[:length]), dict(zip(numbers, addresses, strict=True))


def _named(report: _Report, lines: Lines, driver: Driver, text: Sequence[str], *, right: frozenset[_Store]) -> Named:
    difference = report.fault.difference
    used = _used(report, lines)
    if used is not None:
        return used
    if difference is None:
        wild = report.fault.kind == "crash-wild"  # no function returns such a pointer
        return Named() if wild else before_crash(report.way, lines, text)
    if difference.facet == "reply":
        refused = report.fault.comparison.actual[report.fault.operation].refused
        return return_taken(report.way, lines, text, refused=refused) if _decides(report.fault) else Named()
    return _stored(report, difference, lines, driver, right=right)


def _decides(fault: Unplaced) -> bool:
    """Whether the `return` is what goes wrong. It is not where a call did its work although it must refuse."""
    judgement = fault.judgement
    if judgement is None or not judgement.expected.refused or judgement.actual.refused:
        return True
    return not any(other.facet == "failing" and other.field != "the call" for other in judgement.differences)


def _used(report: _Report, lines: Lines) -> Named | None:
    """Return where the call used freed memory, or None. Everything else that is wrong follows from such a use."""
    if report.used is None:
        return None
    line, freed = lines.get(stack_of(report.used.caller), ())[:1], lines.get(stack_of(report.used.freed_at), ())[:1]
    if not line:
        return None
    at = f" at {freed[0]}" if freed else ""
    sentence = (
        f"At {line[0]} it uses memory that was freed{at}. Read what is still needed, such as next, before the free."
    )
    return Named(lines=line, said=sentence, explains_all=True)


def _stored(
    report: _Report, difference: Difference, lines: Lines, driver: Driver, *, right: frozenset[_Store]
) -> Named:
    """Return the last store to the wrong value; for an `ALLOCATED` difference, the last store to what it changed."""
    named = _store_of(report, difference, lines, driver, right=right)
    if ALLOCATED in difference.tags:
        others = (_store_of(report, other, lines, driver, right=right) for other in _differences(report))
        named = next((other for other in others if other.lines), named)
    return named


def _store_of(
    report: _Report, difference: Difference, lines: Lines, driver: Driver, *, right: frozenset[_Store]
) -> Named:
    word = _places(report, driver).get(difference.place or difference.field)
    if word is None:
        return Named()
    if report.stores.get(word):
        line = lines.get(stack_of(report.stores[word]), ())[:1]
        if STILL_EMPTY not in difference.tags or not line:
            return Named(lines=line)
        if (report.stores[word], _value(report, word)) not in right:
            return Named(lines=line, stored=True)
        return Named(said=f"This call stores {difference.actual} there, at {line[0]}, and nothing else after it.")
    if difference.facet == "list" or not _was_left(report, difference, driver):  # which link, a reader could not tell
        return Named()
    return Named(said=f"This call never stores to {difference.in_words}.")


def _was_left(report: _Report, difference: Difference, driver: Driver) -> bool:
    """Whether the wrong value is the one of before the call, in the same memory: then the call did not store to it.

    What the call itself made, it may also have filled in ways that are not observed, such as calloc.
    """
    at, name = report.fault.operation, difference.field
    before, after = _places(report, driver, at - 1).get(name), _places(report, driver, at).get(name)
    if difference.place or before is None or after is None or report.stores.keys() & {after, _NO_WORD}:
        return False
    return _value(report, before, at - 1) == _value(report, after, at)


def _right_stores(reports: Iterable[_Report], driver: Driver) -> frozenset[_Store]:
    """Return the stores, with their values, to words that are right after the call.

    The store that fills a new table with the mark for nothing is such a store. Only calls in which something is missing
    are used: a store that fills does so in all of them.
    """
    right = set()
    for report in reports:
        if any(STILL_EMPTY in difference.tags for difference in _differences(report)):
            places = _places(report, driver)
            wrong = {places.get(difference.place or difference.field) for difference in _differences(report)}
            right |= {(at, _value(report, word)) for word, at in report.stores.items() if at and word not in wrong}
    return frozenset(right)


def _differences(report: _Report) -> Sequence[Difference]:
    """Return all differences after the call."""
    judgement = report.fault.judgement
    return judgement.differences if judgement is not None else ()


def _places(report: _Report, driver: Driver, step: int | None = None) -> Mapping[str, int]:
    """Return the numbers of the record's words by their names, after that step or else the call; none before any."""
    comparison = report.fault.comparison
    targets = max((operation.target or 1 for operation in comparison.case.trace.operations), default=1)
    try:
        return driver.places(_record(report, step), targets) if step != -1 else {}
    except ValueError:
        return {}


def _value(report: _Report, word: int, step: int | None = None) -> int:
    """Return the value of this word of the record."""
    (value,) = _INT.unpack_from(_record(report, step), word * _INT.size)
    return int(value)


def _record(report: _Report, step: int | None = None) -> bytes:
    fault = report.fault
    return fault.comparison.played.steps[fault.operation if step is None else step].record
