"""Find the line of a fault: the `return` that a call took, or the store that left a wrong value.

The graded program does not report lines. So the file is built once more, not optimized, and reports each block of
code and each store (harness/lines.c). The cases that went wrong at an unknown line are played on that build. If it
leaves another state than the graded program, its report is ignored.

The path (`way`) of a call shows which return it took, from where, and what it had called last. It is a list of the
addresses at which blocks of code begin, with `_ENTERED` and `_LEFT` between them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from grader.core.judgement import STILL_EMPTY, Difference, Evidence, Judgement, Symptom
from grader.core.verdict import SourceLine
from grader.runtime.native.native_played import ALLOCATED, BlockEvent, HeapEvent, NativePlayed
from grader.runtime.native.project import Driver, native_program
from grader.runtime.native.replay import replay
from grader.runtime.native.symbolize import Lines, source_lines, stack_of
from grader.runtime.protocol import Built, Comparison, Origin, Place, Unplaced
from grader.system.sandbox import Workspace

_NEAR = 3
"""The most blocks between the end of a function and the `return` that its result decides. Also the most lines between
the first line of a block and the block's `goto`."""

_ENTERED, _LEFT = 1, 2
"""Markers on a call's path, between addresses."""
_MOST_CASES = 400
_MOST_OF_PATH = 512
"""The most addresses of a path; lines.c sends no more."""
_WORD, _INT = struct.Struct("<Q"), struct.Struct("<i")
_NO_WORD = 0
"""The number of a word to which no student's code stores. As a key of `_Report.stores`: not all stores are known."""
_Store = tuple[int, int]
"""The address of a storing instruction, and the value that it stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """What a build that reports lines reported of one case."""

    case: int
    comparison: Comparison
    cause: Evidence
    way: tuple[int, ...]
    """The addresses of the last blocks of code that the call ran, with `_ENTERED` and `_LEFT` between them."""
    stores: Mapping[int, int]
    """By word of the record, the address of the last instruction in the call that stored to it. The address is 0 for
    memory that the call allocated. `_NO_WORD` is a key if not all stores are known."""
    used: BlockEvent | None
    """The call's first use of freed memory."""
    before: Mapping[str, int]
    """The numbers of the record's words by their names, before the call; empty before the first call of a case."""
    after: Mapping[str, int]
    """The same after the call."""

    @property
    def differences(self) -> Sequence[Difference]:
        """All differences after the call."""
        judgement = self.comparison.wrong.get(self.cause.operation)
        return judgement.differences if judgement is not None else ()

    @property
    def addresses(self) -> Iterator[int]:
        """All addresses whose lines are needed."""
        yield from self.way
        yield from self.stores.values()
        if self.used is not None:
            yield from (self.used.caller, self.used.freed_at)

    def word_of(self, difference: Difference) -> int | None:
        """Return the number of the word at which there is this difference."""
        return self.after.get(difference.place or difference.field)

    def value(self, word: int, *, back: int = 0) -> int:
        """Return the value of this word of the record after the call, or `back` steps earlier."""
        steps = self.comparison.played.steps
        (value,) = _INT.unpack_from(steps[self.cause.operation - back].record, word * _INT.size)
        return int(value)


def find_lines(
    work: Workspace,
    comparisons: Sequence[Comparison],
    unplaced: Sequence[Unplaced],
    *,
    driver: Driver,
    build: Callable[[Workspace], Built],
    source: bytes,
) -> tuple[dict[Place, Origin], float]:
    """Return the lines by case and operation, and the CPU seconds used.

    Raises `GraderError` when the grader's side breaks, never because of what the program reports.
    """
    selected = [(case, cause) for case, cause in unplaced if _can_be_played(cause)][:_MOST_CASES]
    if not selected or work.budget.empty:
        return {}, 0.0
    built = build(work)
    if built.program is None:
        return {}, built.cpu_seconds
    program = native_program(built.program)
    replayed = replay(
        work,
        program,
        [comparisons[case].case for case, _ in selected],
        driver=driver,
        failing=[cause.operation for _, cause in selected],
        lines=True,
    )
    reports = [
        report
        for each, played in zip(selected, replayed.played, strict=True)
        if (report := _report_of(comparisons, each, played, driver)) is not None
    ]
    lines = source_lines(work, program, [stack_of(address) for report in reports for address in report.addresses])
    text = source.decode(errors="replace").split("\n")
    right = _right_stores(reports)
    found = {(report.case, report.cause.operation): _origin(report, lines, text, right=right) for report in reports}
    return found, built.cpu_seconds + replayed.cpu_seconds


def _can_be_played(cause: Evidence) -> bool:
    """Return whether to play the call again. A call that hangs would use all its time again, and its line is known."""
    return isinstance(cause, Difference) or _crashed(cause)


def _crashed(cause: Evidence) -> bool:
    return cause.matched_kind in ("crash", "crash-wild")


def _same(comparison: Comparison, cause: Evidence, played: NativePlayed) -> bool:
    """Whether the call left the same record here as in the graded program."""
    at = cause.operation
    if _crashed(cause):
        return len(played.steps) == at
    if played.lines is None:
        return False
    steps = comparison.played.steps
    return at < min(len(played.steps), len(steps)) and played.steps[at].record == steps[at].record


def _report_of(
    comparisons: Sequence[Comparison], unplaced: Unplaced, played: NativePlayed, driver: Driver
) -> _Report | None:
    """Return the report; None if the harness did not send it, or if the record differs from the graded program's."""
    case, cause = unplaced
    comparison = comparisons[case]
    if not _same(comparison, cause, played):
        return None
    at, words = cause.operation, 0
    before: Mapping[str, int] = {}
    after = before
    if not _crashed(cause):
        words = len(played.steps[at].record) // _INT.size
        before, after = _places(comparison, driver, at - 1), _places(comparison, driver, at)
    report = _decoded(played.lines, words) if played.lines is not None else ((), {})
    if report is None:
        return None
    used = (event for event in played.events if event.event is HeapEvent.USED_AFTER_FREE and event.operation == at)
    return _Report(
        case=case,
        comparison=comparison,
        cause=cause,
        way=report[0],
        stores=report[1],
        used=next(used, None),
        before=before,
        after=after,
    )


def _places(comparison: Comparison, driver: Driver, step: int) -> Mapping[str, int]:
    """Return the numbers of the record's words by their names, after that step; {} before the first."""
    targets = max((operation.target or 1 for operation in comparison.case.trace.operations), default=1)
    try:
        return driver.places(comparison.played.steps[step].record, targets) if step >= 0 else {}
    except ValueError:
        return {}


def _decoded(body: bytes, record_words: int) -> tuple[tuple[int, ...], Mapping[int, int]] | None:
    """Return path and stores from the body of a LINES frame; None for a body that the harness did not send.

    Student code can send frames too: with a longer path, or with stores to words that the record does not have.
    """
    if not body or len(body) % _WORD.size:
        return None
    length, *words = (word for (word,) in _WORD.iter_unpack(body))
    numbers, addresses = words[length::2], words[length + 1 :: 2]
    if length > min(len(words), _MOST_OF_PATH) or len(numbers) != len(addresses):
        return None
    if any(number >= record_words for number in numbers if number != _NO_WORD):
        return None
    return tuple(words[:length]), dict(zip(numbers, addresses, strict=True))


def _origin(report: _Report, lines: Lines, text: Sequence[str], *, right: frozenset[_Store]) -> Origin:
    cause = report.cause
    used = _used(report, lines)
    if used is not None:
        return used
    if isinstance(cause, Symptom):
        wild = cause.matched_kind == "crash-wild"  # no function returns such a pointer
        return Origin() if wild else before_crash(report.way, lines, text)
    if cause.facet == "reply":
        judgement = report.comparison.wrong[cause.operation]
        refused = judgement.actual.refused
        return return_taken(report.way, lines, text, refused=refused) if _decides(judgement) else Origin()
    return _stored(report, cause, lines, right=right)


def _decides(judgement: Judgement) -> bool:
    """Return whether the `return` is the fault. It is not if the call did work although it must refuse."""
    if not judgement.expected.refused or judgement.actual.refused:
        return True
    return not any(other.facet == "failing" and other.field != "the call" for other in judgement.differences)


def _used(report: _Report, lines: Lines) -> Origin | None:
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
    return Origin(lines=line, sentence=sentence, explains_all=True)


def _stored(report: _Report, difference: Difference, lines: Lines, *, right: frozenset[_Store]) -> Origin:
    """Return the last store to the wrong word. An `ALLOCATED` difference has no word: use another difference."""
    origin = _store_of(report, difference, lines, right=right)
    if ALLOCATED in difference.tags:
        others = (_store_of(report, other, lines, right=right) for other in report.differences)
        origin = next((other for other in others if other.lines), origin)
    return origin


def _store_of(report: _Report, difference: Difference, lines: Lines, *, right: frozenset[_Store]) -> Origin:
    word = report.word_of(difference)
    if word is None:
        return Origin()
    if report.stores.get(word):
        line = lines.get(stack_of(report.stores[word]), ())[:1]
        if STILL_EMPTY not in difference.tags or not line:
            return Origin(lines=line)
        if (report.stores[word], report.value(word)) not in right:
            return Origin(lines=line, stored=True)
        return Origin(sentence=f"This call stores {difference.actual} there, at {line[0]}, and nothing else after it.")
    if difference.facet == "list" or not _was_left(report, difference):  # "list" does not say which link is wrong
        return Origin()
    stores_beside = _beside(report, word, difference, lines)
    return Origin(sentence=f"This call never stores to {difference.in_words}{stores_beside}.")


def _beside(report: _Report, word: int, difference: Difference, lines: Lines) -> str:
    """Return in words the call's store nearest to the wrong word, because the missing store probably belongs there."""
    names = {number: name for name, number in report.after.items()}
    known = [
        (abs(number - word), names[number], line)
        for number, at in report.stores.items()
        if number in names
        for line in lines.get(stack_of(at), ())[:1]
    ]
    if not known:
        return ""
    _, name, line = min(known, key=lambda entry: entry[:2])
    return f"; it stores to {replace(difference, field=name).in_words}, at {line}"


def _was_left(report: _Report, difference: Difference) -> bool:
    """Return whether the wrong value was in the same memory before the call, so that the call did not store it.

    Return False for memory that the call allocated: it may have been filled unobserved, such as by calloc.
    """
    before, after = report.before.get(difference.field), report.after.get(difference.field)
    if difference.place or before is None or after is None or report.stores.keys() & {after, _NO_WORD}:
        return False
    return report.value(before, back=1) == report.value(after)


def _right_stores(reports: Iterable[_Report]) -> frozenset[_Store]:
    """Return the stores, with their values, to words that are right after the call.

    The store that fills a new table with the mark for an empty entry is such a store. Only calls in which an entry is
    missing are used, because this store occurs in all of them.
    """
    right = set()
    for report in reports:
        if any(STILL_EMPTY in difference.tags for difference in report.differences):
            wrong = {report.word_of(difference) for difference in report.differences}
            right |= {(at, report.value(word)) for word, at in report.stores.items() if at and word not in wrong}
    return frozenset(right)


@dataclass(slots=True)
class _Function:
    """A function that a call ran, with the line of each block of code that it ran, in order."""

    blocks: list[SourceLine]
    helper: SourceLine | None = None
    """The `return` taken by the last function that this one called; None if it returned no value."""
    since: int = 0
    """The number of this function's blocks since that return."""


def return_taken(way: Sequence[int], lines: Lines, text: Sequence[str], *, refused: bool) -> Origin:
    """Return the line of the return that a call took; for a call that refused, the line that decided to refuse.

    `way` is as in a `_Report`; `text` has the lines of the student's file.
    """
    last = max((place for place, where in enumerate(way) if where == _LEFT), default=0)
    call = _followed(way[:last], lines, text)[-1]
    line = _return_of(call, text)
    if line is None:
        return Origin()
    if not refused:
        return Origin(lines=(line,))
    line, helper = _jump(call, text) or line, call.helper
    decided = helper is not None and helper.function != line.function and call.since <= _NEAR
    return Origin(lines=(line,), sentence=_return_sentence(helper) if helper is not None and decided else "")


def before_crash(way: Sequence[int], lines: Lines, text: Sequence[str]) -> Origin:
    """Name the function that returned right before the crash: perhaps it returned the wrong pointer."""
    inside = _followed(way, lines, text)[-1]
    if inside.helper is None or inside.since > _NEAR:
        return Origin()
    return Origin(sentence=_return_sentence(inside.helper))


def _return_sentence(helper: SourceLine) -> str:
    return f"Right before, {helper.function} returned at {helper}."


def _jump(call: _Function, text: Sequence[str]) -> SourceLine | None:
    """Return the line from which a `goto` went to the return; None if no `goto` did."""
    for block, target in reversed(list(pairwise(call.blocks))):
        near = text[max(block.line - 1, 0) : block.line + _NEAR]
        if target.line > block.line + _NEAR and any("goto " in line for line in near):
            return block
    return None


def _followed(way: Sequence[int], lines: Lines, text: Sequence[str]) -> list[_Function]:
    """Return the functions entered and not left, innermost last. The first is one whose entry is not on the path."""
    inside = [_Function([])]
    left: _Function | None = None
    for where in way:
        if where == _ENTERED:
            inside.append(_Function([]))
        elif where == _LEFT and len(inside) > 1:
            left = inside.pop()
            line = _return_of(left, text)
            inside[-1].helper = line if line is not None and "return " in _written(line, text) else None
            inside[-1].since = 0
        else:
            for line in lines.get(stack_of(where), ())[:1]:
                if left is None or not left.blocks or left.blocks[-1].function != line.function:
                    inside[-1].blocks.append(line)
                    inside[-1].since += 1
            left = None  # one last block of a function follows its exit
    return inside


def _return_of(function: _Function, text: Sequence[str]) -> SourceLine | None:
    """Return the last block but one if it has a `return`, else the last: all returns leave through the last block."""
    for line in reversed(function.blocks[-2:-1] or function.blocks[-1:]):
        if "return" in _written(line, text):
            return line
    return function.blocks[-1] if function.blocks else None


def _written(line: SourceLine, text: Sequence[str]) -> str:
    """Return the text of this line; "" if a `#line` directive gives a number that the file does not have."""
    return text[line.line - 1] if 0 < line.line <= len(text) else ""
