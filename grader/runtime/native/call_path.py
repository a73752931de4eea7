"""The path (`way`) of a call through the program: which return it took, from where, and what it had called last.

A path is a list of the addresses at which blocks of code begin, with `ENTERED` and `LEFT` between them
(harness/lines.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from grader.core.verdict import SourceLine
from grader.runtime.native.symbolize import Lines, stack_of
from grader.runtime.protocol import Named

_NEAR = 3
"""The most blocks between the end of a function and the return that it decided, and the most lines of one place."""

_ENTERED, _LEFT = 1, 2
"""Markers on a call's path, in the place of an address."""


@dataclass(slots=True)
class _Function:
    """A function on the path."""

    blocks: list[SourceLine]
    helper: SourceLine | None = None
    """The `return` taken by the last function that was called here; None if it returned no value."""
    since: int = 0
    """The number of this function's blocks since that return."""


def return_taken(way: Sequence[int], lines: Lines, text: Sequence[str], *, refused: bool) -> Named:
    """Return the line of the return that a call took; for a call that refused, the place where that was decided.

    `text` holds the lines of the student's file.
    """
    last = max((place for place, where in enumerate(way) if where == _LEFT), default=0)
    call = _followed(way[:last], lines, text)[-1]
    line = _return_of(call, text)
    if line is None:
        return Named()
    if not refused:
        return Named(lines=(line,))
    line, helper = _jump(call, text) or line, call.helper
    decided = helper is not None and helper.function != line.function and call.since <= _NEAR
    return Named(lines=(line,), said=_return_sentence(helper) if helper is not None and decided else "")


def before_crash(way: Sequence[int], lines: Lines, text: Sequence[str]) -> Named:
    """Name the function that returned right before the crash: perhaps it returned the wrong pointer."""
    inside = _followed(way, lines, text)[-1]
    if inside.helper is None or inside.since > _NEAR:
        return Named()
    return Named(said=_return_sentence(inside.helper))


def _return_sentence(helper: SourceLine) -> str:
    return f"Right before, {helper.function} returned at {helper}."


def _jump(call: _Function, text: Sequence[str]) -> SourceLine | None:
    """Return the line from which a `goto` went to the return; None without one."""
    for block, target in reversed(list(pairwise(call.blocks))):
        near = text[max(block.line - 1, 0) : block.line + _NEAR]
        if target.line > block.line + _NEAR and any("goto " in line for line in near):
            return block
    return None


def _followed(way: Sequence[int], lines: Lines, text: Sequence[str]) -> list[_Function]:
    """Return the functions that were entered and not left, innermost last; for a call that returned, only the call."""
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
    """Return its last block but one, if that is a return: all returns leave a function through the last block."""
    for line in reversed(function.blocks[-2:-1] or function.blocks[-1:]):
        if "return" in _written(line, text):
            return line
    return function.blocks[-1] if function.blocks else None


def _written(line: SourceLine, text: Sequence[str]) -> str:
    """Return the text of this line; "" where a `#line` directive gives a number that the file does not have."""
    return text[line.line - 1] if 0 < line.line <= len(text) else ""
