"""The mistakes of Homework 3: what each looks like, which rule it breaks, and what to tell the student.

The first clue that fits is taken, so the special ones stand before the general ones. Hints use the handout's words.
"""

from __future__ import annotations

from grader.lab import Clue
from grader.labs import (
    paged_kv_clues_accepted as accepted,
    paged_kv_clues_endings as endings,
    paged_kv_clues_list as sequences,
    paged_kv_clues_memory as memory,
    paged_kv_clues_pool as pool,
    paged_kv_clues_refused as refused,
    paged_kv_clues_state as state,
    paged_kv_clues_structures as structures,
)

__all__ = ["CLUES"]

CLUES: tuple[Clue, ...] = (
    *memory.NULL_ENGINE,
    *memory.ISOLATION,
    *endings.ENDINGS,
    *memory.MEMORY,
    *accepted.ACCEPTED,
    *refused.REFUSED,
    *accepted.FAILING,
    *state.MIXED_UP,
    *state.CHOICE,
    *state.TRAVERSAL,
    *state.COPY_ON_WRITE,
    *pool.POOL,
    *pool.ADDRESS,
    *structures.TABLES,
    *structures.COUNTS,
    *sequences.LIST,
    *memory.LEAKS,
    *endings.LAST,
)
"""In the order in which they are tried."""
