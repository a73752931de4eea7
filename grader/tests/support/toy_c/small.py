"""A small ring, for what is checked beyond the cases."""

from __future__ import annotations

from grader.labs.plain_lab import SmallLines

SMALLS = [
    SmallLines(opening="ring_new 2", lines=("ring_put []", "ring_put [1]", "ring_put [2,1]", "ring_take"), most=200)
]
