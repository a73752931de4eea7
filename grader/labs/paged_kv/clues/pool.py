"""Clues for wrong content of the pool, and for an append that goes to the wrong place."""

from __future__ import annotations

from grader.assignment.lab import Clue
from grader.labs.paged_kv.clues.words import APPEND, DESTROY, INIT, words

__all__ = ["ADDRESS", "POOL"]

_WRITTEN_BY = {
    "llm_init": "Constraint 4/no-write",
    "create_sequence": "Constraint 4/no-write",
    "free_sequence": "Constraint 4/no-write",
    "fork_sequence": "Constraint 4/no-write",
    "llm_destroy": "Constraint 4/no-write",
    "append_kv": "Task 4/store",
}

POOL = (
    Clue(
        rule="destroy",
        calls=DESTROY,
        facets=("untouched",),
        clause="Task 5/pool",
        hint="llm_destroy wrote to the pool ({field}). The pool belongs to the caller and stays as it is.",
    ),
    Clue(
        rule="no-premature-write",
        facets=("untouched",),
        tags=words("zeroed"),
        clause=_WRITTEN_BY,
        hint="{call} zeroes memory of the pool ({field}). Only append_kv may write there; the grader looks for the "
        "values that it put in before.",
    ),
    Clue(
        rule="no-premature-write",
        facets=("untouched",),
        clause=_WRITTEN_BY,
        hint="{call} writes to the pool ({field}). Only append_kv may write there.",
    ),
)

ADDRESS = (
    Clue(
        rule="address",
        facets=("counters",),
        part="pool_base_ptr",
        clause="Task 1/pool-pointer",
        calls=INIT,
        hint="pool_base_ptr must be pool_addr itself, whatever its alignment.",
    ),
    Clue(
        rule="address",
        facets=("counters",),
        part="pool_base_ptr",
        clause="Task 1/pool-pointer",
        hint="{call} moves pool_base_ptr. It stays at pool_addr; compute addresses in a variable of your own.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("tables",),
        tags=words("mapping"),
        clause="Part 2.2/table-walk",
        hint="append_kv must map its new block at {field}, which is {actual}: logical = kv_count / 16, then "
        "block_table[logical / 16][logical % 16].",
    ),
    Clue(
        rule="block-table",
        calls=APPEND,
        facets=("tables",),
        tags=words("fill"),
        circumstances=words("l2-missing"),
        clause="Task 4/l2-missing",
        hint="append_kv makes an L2 table, and {field} is {actual}. All entries of a new table are -1 but the one that "
        "is mapped.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("tables",),
        tags=words("fill"),
        clause="Part 2.2/table-walk",
        hint="append_kv maps a block at {field}, where none belongs. logical = kv_count / 16, then "
        "block_table[logical / 16][logical % 16].",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("written",),
        tags=words("target", "elsewhere"),
        clause="Part 2.2/physical-address",
        hint="{note} The address is 64 * block + 4 * slot bytes after pool_base_ptr, with slot = kv_count % 16 before "
        "kv_count is raised. p + 1 is 4 bytes further for an int *p, 1 byte for a char *p.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("written",),
        tags=words("target"),
        clause="Task 4/store",
        hint="{note} kv_data is one int: store its 4 bytes, 64 * block + 4 * slot bytes after pool_base_ptr. "
        "p + 1 is 4 bytes further for an int *p, 1 byte for a char *p.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("written",),
        tags=words("zeroed"),
        clause="Task 4/store",
        hint="append_kv zeroes words that it does not own ({field}). It writes the 4 bytes of kv_data and nothing "
        "else.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("written",),
        clause="Task 4/store",
        hint="append_kv writes where it must not ({field}). It stores the 4 bytes of kv_data and nothing else.",
    ),
)
