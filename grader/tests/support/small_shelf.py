"""The small engine of the shelf: two boxes, which are free in some order."""

from __future__ import annotations

from dataclasses import replace

from grader.labs.plain_lab import SmallLines, SmallPlain
from grader.tests.support.toy.engine import Shelf
from grader.tests.support.toy_lab import lab

SHELF = SmallLines(
    opening="shelf 2",
    lines=("take 0", "take 1", "take 2", "give [0]", "give [1]", "give [0,1]", "give [1,0]"),
    most=1000,
)


def small_shelf(lines: SmallLines = SHELF, *, most: int | None = None) -> SmallPlain:
    """Return it; `most` replaces the number of transitions after which no state is looked at."""
    return SmallPlain(lines if most is None else replace(lines, most=most), lab().grammar.operations, Shelf())
