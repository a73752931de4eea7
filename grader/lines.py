"""The line where a wrong thing was done: the `return` that a call took, or the store that left a wrong value.

Nothing of the program that is graded tells that. So the file is built once more, not optimized, in a way that tells of
each block of code and each store (drivers/lines.c), and the cases that went wrong with no line known are played on it.
Where that program leaves another state than the graded one it is not believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grader.causes import CaseFindings
from grader.errors import GraderError
from grader.frames import Frame
from grader.lab import Lab
from grader.replay import Played, replay
from grader.sandbox import Workspace
from grader.symbols import source_lines
from grader.symptom import Lines, Named, stack_of
from grader.verdict import SourceLine, Visibility
from reference.model import Difference

__all__ = ["find_lines"]

_MOST_CASES = 60
_WORD = struct.Struct("<Q")
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


def find_lines(
    work: Workspace, lab: Lab, source: bytes, found: Sequence[CaseFindings]
) -> tuple[dict[tuple[int, int], Named], float]:
    """For case and operation the lines, and the CPU seconds that it took. Raises nothing: points need no lines."""
    chosen = sorted(_without_line(found), key=lambda number: _is_hidden(found[number]))[:_MOST_CASES]
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
            number: _told(found[number], played.lines)
            for number, played in zip(chosen, replayed.played, strict=True)
            if played.lines is not None and _same(found[number], played)
        }
        stacks = [stack_of(address) for one in told.values() for address in (*one.way, *one.stores.values())]
        lines = source_lines(work, built.program, stacks)
    except GraderError:
        return {}, 0.0
    text = source.decode(errors="replace").split("\n")
    named = {(number, _operation(one.one)): _named(one, lines, lab, text) for number, one in told.items()}
    return named, built.cpu_seconds + replayed.cpu_seconds


def _without_line(found: Sequence[CaseFindings]) -> Iterator[int]:
    for number, one in enumerate(found):
        if one.cause is not None and one.cause.difference is not None and not one.cause.culprits:
            yield number


def _is_hidden(one: CaseFindings) -> bool:
    return one.comparison.case.visibility is Visibility.HIDDEN


def _operation(one: CaseFindings) -> int:
    assert one.cause is not None
    return one.cause.operation


def _same(one: CaseFindings, played: Played) -> bool:
    """Did the call leave the same record as in the program that is graded?"""
    at = _operation(one)
    steps = one.comparison.played.steps
    return at < len(played.steps) and at < len(steps) and played.steps[at].record == steps[at].record


def _told(one: CaseFindings, frame: Frame) -> _Told:
    words = [word for (word,) in _WORD.iter_unpack(frame.body[: len(frame.body) // _WORD.size * _WORD.size])]
    length = words[0] if words else 0
    pairs = words[1 + length :]
    return _Told(one, tuple(words[1 : 1 + length]), dict(zip(pairs[::2], pairs[1::2], strict=False)))


def _named(told: _Told, lines: Lines, lab: Lab, text: Sequence[str]) -> Named:
    assert told.one.cause is not None
    difference = told.one.cause.difference
    assert difference is not None
    return _returned(told, lines, text) if difference.facet == "reply" else _stored(told, difference, lines, lab)


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
    inside = [_Function([])]
    for where in told.way:
        if where == _ENTERED:
            inside.append(_Function([]))
        elif where == _LEFT:
            left = inside.pop()
            if not inside:
                inside.append(_Function([]))
            line = _return_of(left, text)
            if len(inside) == 1 and line is not None:
                return _told_of(line, left)
            inside[-1].helper, inside[-1].since = line, 0
        else:
            for line in lines.get(stack_of(where), ())[:1]:
                inside[-1].blocks.append(line)
                inside[-1].since += 1
    return Named()


def _return_of(function: _Function, text: Sequence[str]) -> SourceLine | None:
    """Its last block but one, if that is a return: the last one is that by which all returns leave a function."""
    for line in reversed(function.blocks[-2:-1] or function.blocks[-1:]):
        if 0 < line.line <= len(text) and "return" in text[line.line - 1]:
            return line
    return function.blocks[-1] if function.blocks else None


def _told_of(line: SourceLine, function: _Function) -> Named:
    helper = function.helper
    decided = helper is not None and helper.function != line.function and function.since <= 2
    said = f"Right before, {helper.function} returns at {helper}." if helper is not None and decided else ""
    return Named(lines=(line,), said=said)


# ---------------------------------------------------------------- the store of a wrong value


def _stored(told: _Told, difference: Difference, lines: Lines, lab: Lab) -> Named:
    comparison = told.one.comparison
    record = comparison.played.steps[_operation(told.one)].record
    targets = max((operation.target or 1 for operation in comparison.case.trace.operations), default=1)
    try:
        word = lab.places(record, targets).get(difference.place or difference.field)
    except ValueError:
        word = None
    if word is not None and word in told.stores:
        return Named(lines=lines.get(stack_of(told.stores[word]), ())[:1])
    missing = word is not None and difference.facet != "list"
    return Named(said="Your program stores nothing there in this call." if missing else "")
