"""The mistakes of Homework 3: what each looks like, which rule it breaks, and what to tell the student.

The first clue that fits is taken, so special clues come before general ones. Hints use the handout's words.
"""

from __future__ import annotations

from grader.assignment.lab import Clue
from grader.labs.paged_kv.clues import accepted, active_list, endings, memory, pool, refused, state, structures

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
    *active_list.LIST,
    *memory.LEAKS,
    *endings.LAST,
)
"""All clues, in the order in which they are tried."""
