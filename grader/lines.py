"""The line where a wrong thing was done: the `return` that a call took, or the store that left a wrong value.

Nothing of the program that is graded tells that. So the file is built once more, not optimized, in a way that tells of
each block of code and each store (drivers/lines.c), and the cases that went wrong with no line known are played on it.
Where that program leaves another state than the graded one it is not believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from grader.blocks import BlockEvent, Event
from grader.causes import CaseFindings
from grader.compare import ALLOCATED, REFUSALS
from grader.errors import GraderError
from grader.lab import Lab
from grader.replay import Played, replay
from grader.sandbox import Workspace
from grader.symbols import source_lines
from grader.symptom import Lines, Named, stack_of
from grader.verdict import SourceLine, Visibility
from reference.model import STILL_EMPTY, Difference

__all__ = ["find_lines"]

_MOST_CASES = 400
_WORD = struct.Struct("<Q")
_NEAR = 3
"""So many blocks may lie between the end of a function and the return that it decided."""

_ENTERED, _LEFT = 1, 2
"""On a call's way, in the place of an address."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a build that tells of lines said of one case."""

    one: CaseFindings
    way: tuple[int, ...]
    """Where the last blocks of code begin that the call went through; where it entered and left functions."""
    stores: Mapping[int, int]
    """By word of the record its last store in the call."""
    used: BlockEvent | None
    """Its first use of memory that was freed."""


def find_lines(
    work: Workspace, lab: Lab, source: bytes, found: Sequence[CaseFindings]
) -> tuple[dict[tuple[int, int], Named], float]:
    """For case and operation the lines, and the CPU seconds that it took. Raises nothing: points need no lines."""
    chosen = _chosen(found)
    if not chosen:
        return {}, 0.0
    try:
        built = lab.build_telling_lines(work, source)
        if built.program is None:
            return {}, built.cpu_seconds
        replayed = replay(
            work,
            built.program,
            [found[number].comparison.case for number in chosen],
            codes=lab.codes,
            settings=lab.driver_settings,
            failing=[_operation(found[number]) for number in chosen],
            lines=True,
        )
        told = {
            number: _told(found[number], played)
            for number, played in zip(chosen, replayed.played, strict=True)
            if _same(found[number], played)
        }
        stacks = [stack_of(address) for one in told.values() for address in _addresses(one)]
        lines = source_lines(work, built.program, stacks)
    except GraderError:
        return {}, 0.0
    text = source.decode(errors="replace").split("\n")
    named = {(number, _operation(one.one)): _named(one, lines, lab, text=text) for number, one in told.items()}
    return named, built.cpu_seconds + replayed.cpu_seconds


def _chosen(found: Sequence[CaseFindings]) -> list[int]:
    """Of each cause those first that a report would show: public, plain, short."""
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(found):
        if one.cause is not None and not one.cause.culprits and (one.cause.difference is not None or _ended(one)):
            groups.setdefault(one.group, []).append(number)
    ranked = [
        (rank, number)
        for numbers in groups.values()
        for rank, number in enumerate(sorted(numbers, key=lambda number: _place(found[number])))
    ]
    return [number for _, number in sorted(ranked)[:_MOST_CASES]]


def _place(one: CaseFindings) -> tuple[bool, bool, int]:
    case = one.comparison.case
    return case.visibility is Visibility.HIDDEN, not one.plain, len(case.trace.operations)


def _ended(one: CaseFindings) -> bool:
    """Did the call crash? One that hangs would take all its time once more, and its line is known."""
    return one.cause is not None and one.cause.kind in ("crash", "crash-wild")


def _addresses(told: _Told) -> Iterator[int]:
    yield from told.way
    yield from told.stores.values()
    if told.used is not None:
        yield from (told.used.caller, told.used.freed_at)


def _operation(one: CaseFindings) -> int:
    assert one.cause is not None
    return one.cause.operation


def _same(one: CaseFindings, played: Played) -> bool:
    """Did the call leave the same record as in the program that is graded?"""
    at = _operation(one)
    if _ended(one):
        return len(played.steps) == at
    if played.lines is None:
        return False
    steps = one.comparison.played.steps
    return at < len(played.steps) and at < len(steps) and played.steps[at].record == steps[at].record


def _told(one: CaseFindings, played: Played) -> _Told:
    body = played.lines.body if played.lines is not None else b""
    words = [word for (word,) in _WORD.iter_unpack(body[: len(body) // _WORD.size * _WORD.size])]
    length = words[0] if words else 0
    pairs = words[1 + length :]
    used = (event for event in played.events if event.event is Event.USED_AFTER_FREE)
    return _Told(
        one,
        way=tuple(words[1 : 1 + length]),
        stores=dict(zip(pairs[::2], pairs[1::2], strict=False)),
        used=next((event for event in used if event.operation == _operation(one)), None),
    )


def _named(told: _Told, lines: Lines, lab: Lab, *, text: Sequence[str]) -> Named:
    assert told.one.cause is not None
    difference = told.one.cause.difference
    used = _used(told, lines)
    if used is not None:
        return used
    if difference is None:
        return _crashed(told, lines, text)
    if difference.facet == "reply":
        return _returned(told, lines, text) if _decides(told.one) else Named()
    return _stored(told, difference, lines, lab, text=text)


def _decides(one: CaseFindings) -> bool:
    """Is it by the return that it goes wrong? Not where a call did its work that it must not do."""
    assert one.cause is not None
    judgement = one.cause.judgement
    if judgement is None or not judgement.expected.refused or judgement.actual.text in REFUSALS:
        return True
    return not any(other.facet == "failing" and other.field != "the call" for other in judgement.differences)


def _used(told: _Told, lines: Lines) -> Named | None:
    """Where the call used memory that was freed: all else that is wrong comes of it."""
    if told.used is None:
        return None
    line, freed = lines.get(stack_of(told.used.caller), ())[:1], lines.get(stack_of(told.used.freed_at), ())[:1]
    if not line:
        return None
    at = f" at {freed[0]}" if freed else ""
    said = f"At {line[0]} it uses memory that was freed{at}. Read what is still needed, such as next, before the free."
    return Named(lines=line, said=said, freed=True)


# ---------------------------------------------------------------- the return that was taken


@dataclass(slots=True)
class _Function:
    """A function on the way."""

    blocks: list[SourceLine]
    helper: SourceLine | None = None
    """The return that the last function took which was called here, and has not been followed by much."""
    since: int = 0
    """Blocks of this one since then."""


def _returned(told: _Told, lines: Lines, text: Sequence[str]) -> Named:
    """The return that the call took, and that of the function which decided it."""
    last = max((place for place, where in enumerate(told.way) if where == _LEFT), default=0)
    call = _followed(replace(told, way=told.way[:last]), lines, text)[-1]
    line = _return_of(call, text)
    if line is None:
        return Named()
    refused = told.one.comparison.actual[_operation(told.one)] in REFUSALS
    return _told_of((_jump(call, text) or line) if refused else line, call if refused else None)


def _jump(call: _Function, text: Sequence[str]) -> SourceLine | None:
    """From where a `goto` went to the return: that is where it was decided."""
    for block, target in reversed(list(pairwise(call.blocks))):
        if target.line > block.line + _NEAR and "goto " in "".join(text[block.line - 1 : block.line + _NEAR]):
            return block
    return None


def _crashed(told: _Told, lines: Lines, text: Sequence[str]) -> Named:
    """The function that returned right before the crash: perhaps what it returned is the pointer that is wrong."""
    inside = _followed(told, lines, text)
    helper = inside[-1].helper
    wild = told.one.cause is not None and told.one.cause.kind == "crash-wild"  # no helper returns such a pointer
    if helper is None or wild or inside[-1].since > _NEAR:
        return Named()
    return Named(said=f"Right before, {helper.function} returned at {helper}.")


def _followed(told: _Told, lines: Lines, text: Sequence[str]) -> list[_Function]:
    """The functions that were entered and not left, the innermost last; of a call that returned the call alone."""
    inside = [_Function([])]
    left: _Function | None = None
    for where in told.way:
        if where == _ENTERED:
            inside.append(_Function([]))
        elif where == _LEFT and len(inside) > 1:
            left = inside.pop()
            line = _return_of(left, text)
            by_return = line is not None and "return " in text[line.line - 1]
            inside[-1].helper, inside[-1].since = line if by_return else None, 0
        else:
            for line in lines.get(stack_of(where), ())[:1]:
                if left is None or not left.blocks or left.blocks[-1].function != line.function:
                    inside[-1].blocks.append(line)
                    inside[-1].since += 1
            left = None  # behind the end of a function comes a last piece of it
    return inside


def _return_of(function: _Function, text: Sequence[str]) -> SourceLine | None:
    """Its last block but one, if that is a return: the last one is that by which all returns leave a function."""
    for line in reversed(function.blocks[-2:-1] or function.blocks[-1:]):
        if 0 < line.line <= len(text) and "return" in text[line.line - 1]:
            return line
    return function.blocks[-1] if function.blocks else None


def _told_of(line: SourceLine, function: _Function | None) -> Named:
    helper = function.helper if function is not None else None
    decided = (
        helper is not None and function is not None and helper.function != line.function and function.since <= _NEAR
    )
    said = ""
    if helper is not None and decided:
        said = f"Right before, {helper.function} returned at {helper}."
    return Named(lines=(line,), said=said)


# ---------------------------------------------------------------- the store of a wrong value


def _stored(told: _Told, difference: Difference, lines: Lines, lab: Lab, *, text: Sequence[str]) -> Named:
    """The last store to the wrong value; for what is no value itself that of what it changed."""
    named = _store_of(told, difference, lines, lab, text=text)
    if ALLOCATED in difference.tags and told.one.cause is not None and told.one.cause.judgement is not None:
        others = (_store_of(told, other, lines, lab, text=text) for other in told.one.cause.judgement.differences)
        named = next((other for other in others if other.lines), named)
    return named


def _store_of(told: _Told, difference: Difference, lines: Lines, lab: Lab, *, text: Sequence[str]) -> Named:
    comparison = told.one.comparison
    record = comparison.played.steps[_operation(told.one)].record
    targets = max((operation.target or 1 for operation in comparison.case.trace.operations), default=1)
    try:
        word = lab.places(record, targets).get(difference.place or difference.field)
    except ValueError:
        word = None
    if word is not None and word in told.stores:
        line = lines.get(stack_of(told.stores[word]), ())[:1]
        call = comparison.case.trace.operations[_operation(told.one)].name
        if STILL_EMPTY in difference.tags and line and line[0].function != call:
            return Named(said=f"This call stores {difference.actual} there, at {line[0]}, and nothing else after it.")
        return Named(lines=line, stored=bool(line) and not _is_mark(text[line[0].line - 1 : line[0].line]))
    if word is None or difference.facet == "list":  # who reads it could not tell which link is meant
        return Named()
    return Named(said=f"This call never stores to {difference.in_words}.")


def _is_mark(statement: Sequence[str]) -> bool:
    """Does it put the mark for nothing there, as what fills a new table does?"""
    return any("-1" in line or "NULL" in line for line in statement)
