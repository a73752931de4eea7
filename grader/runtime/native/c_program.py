"""Helpers to write a failing case as a standalone program: what every lab needs for that, above all C text.

A lab has a template and supplies what goes into it; see `Lab.reproduce`. Repeated statements become a loop, so that a
program stays short enough to read.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from jinja2 import Environment

_WIDTH = 100
_INDENT = 4
_FEWEST = 3  # two lines are read faster than a loop
_MOST = 1_000_000  # far from INT_MAX: no loop may overflow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoldedRun(Generic[T]):
    """Items of one shape whose numbers change by a constant step; a single item is a run too."""

    items: tuple[T, ...]
    first: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def folded(self) -> bool:
        """Whether it is written as a loop."""
        return len(self.items) > 1

    @property
    def start(self) -> int:
        """The first value of the loop variable i: that of a number that rises by one, if there is one."""
        return next((first for first, step in zip(self.first, self.steps, strict=True) if step == 1), 1)

    def texts(self) -> list[str]:
        """Return the numbers as C text, written with i where they change."""
        return [self._text(first, step) for first, step in zip(self.first, self.steps, strict=True)]

    def looped(self, lines: Sequence[str]) -> Iterator[str]:
        """Yield the lines, in a loop if there is more than one item."""
        if not self.folded:
            yield from lines
            return
        braces = len(lines) > 1
        last = self.start + len(self.items) - 1
        yield f"for (i = {self.start}; i <= {last}; i++)" + (" {" if braces else "")
        yield from (textwrap.indent(line, " " * _INDENT) for line in lines)
        if braces:
            yield "}"

    def _text(self, first: int, step: int) -> str:
        rest = first - step * self.start
        if not step:
            return str(first)
        times = "i" if step == 1 else f"{step} * i"
        return times if not rest else f"{times} {'-' if rest < 0 else '+'} {abs(rest)}"


def fold(
    items: Sequence[T], shape: Callable[[T], Hashable], numbers: Callable[[T], tuple[int, ...]]
) -> Iterator[FoldedRun[T]]:
    """Cut `items` into runs: neighbours of one shape whose numbers change by a constant step."""
    at = 0
    while at < len(items):
        run = _longest(items[at:], shape, numbers)
        yield run
        at += len(run.items)


def _longest(
    items: Sequence[T], shape: Callable[[T], Hashable], numbers: Callable[[T], tuple[int, ...]]
) -> FoldedRun[T]:
    first = numbers(items[0])
    steps = (0,) * len(first)
    length = 1
    for item, before in zip(items[1:], items, strict=False):
        there = numbers(item)
        if shape(item) != shape(items[0]) or any(abs(number) > _MOST for number in first + there):
            break
        step = tuple(b - a for a, b in zip(numbers(before), there, strict=True))
        if length > 1 and step != steps:
            break
        steps = step
        length += 1
    if length < _FEWEST:
        return FoldedRun(tuple(items[:1]), first, (0,) * len(first))
    return FoldedRun(tuple(items[:length]), first, steps)


def c_comment(text: str) -> str:
    """Return the text as it may stand in a C comment, on one line."""
    apart = re.sub(r"(?<=[*/?])(?=[*/?])", " ", " ".join(text.split()))
    return apart.replace("\\", "/") if apart.endswith("\\") else apart


def c_string(text: str, *, column: int = 0) -> str:
    """Return the text as a C string; a long text as several strings, each on a line that begins at `column`."""
    width = _WIDTH - _INDENT - column - len('" ");')
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("??", "?\\?")
    parts = textwrap.wrap(escaped, width, break_long_words=False, break_on_hyphens=False)
    return '"' + (' "\n' + " " * column + '"').join(parts) + '"'


def c_call(name: str, *arguments: str) -> str:
    """Return a call as a statement, broken over lines where it is too long."""
    lines = textwrap.wrap(
        f"{name}({', '.join(arguments)});",
        _WIDTH - 2 * _INDENT,  # it may stand in a loop
        subsequent_indent=" " * (len(name) + 1),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def render(template: Path, **values: object) -> str:
    """Fill in a template; it has the filters `comment` and `string`."""
    return _environment(template.parent).get_template(template.name).render(values)


@cache
def _environment(folder: Path) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - slow to import

    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - source text, no HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"comment": c_comment, "string": c_string}
    return environment
