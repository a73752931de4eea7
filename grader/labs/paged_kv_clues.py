"""The mistakes of Homework 3: what each looks like, which rule it breaks, and what to tell the student.

The first clue that fits is taken, so the special ones stand before the general ones. Hints use the handout's words.
"""

from __future__ import annotations

from grader.lab import Clue
from grader.labs import (
    paged_kv_clues_memory as memory,
    paged_kv_clues_replies as replies,
    paged_kv_clues_state as state,
)

__all__ = ["CLUES"]

CLUES: tuple[Clue, ...] = (
    *memory.NULL_ENGINE,
    *memory.ISOLATION,
    *memory.ENDINGS,
    *memory.MEMORY,
    *replies.REPLIES,
    *replies.FAILING,
    *state.CHOICE,
    *state.TRAVERSAL,
    *state.COPY_ON_WRITE,
    *state.POOL,
    *state.ADDRESS,
    *state.TABLES,
    *state.COUNTS,
    *state.LIST,
    *memory.LEAKS,
    *memory.LAST,
)
"""In the order in which they are tried."""
