"""Clues for wrong structures: tables, fields, counts."""

from __future__ import annotations

from grader.assignment.lab import Clue
from grader.labs.paged_kv.clues.words import APPEND, CREATE, DESTROY, FORK, FREE, INIT, words

__all__ = ["COUNTS", "TABLES"]

_TABLE = {"create_sequence": "Task 2/map-blocks", "fork_sequence": "Task 3/copy-tables", "append_kv": "Task 4/new-page"}
_FILL = {
    "create_sequence": "Task 2/l2-minus-one",
    "fork_sequence": "Task 3/copy-tables",
    "append_kv": "Task 4/l2-missing",
}

TABLES = (
    Clue(
        rule="block-table",
        calls=FORK,
        facets=("tables",),
        tags=words("shared"),
        clause="Task 3/own-tables",
        hint="The child must have tables of its own. Here it uses the parent's, so a change in one shows in the other, "
        "and both free it.",
    ),
    *(
        Clue(
            rule=rule,
            facets=("tables",),
            tags=words("shape", tag),
            clause=clause,
            hint=f"After {{call}} {{field}} is {{actual}}. {why}",
        )
        for rule, tag, clause, why in (
            (
                "memory-error",
                "small",
                "Part 2.2/l1-size",
                "An L1 table needs 16 pointers (16 * sizeof(int *) bytes), an L2 table 16 ints (16 * sizeof(int)).",
            ),
            (
                "memory-error",
                "freed",
                "Compilation/no-error",
                "It is still used, so it must not be freed yet; or it must be set anew after the free.",
            ),
            (
                "block-table",
                "stray",
                "Part 2.2/l1-size",
                "malloc does not clear memory: set every slot of a new L1 table to NULL, then hang in the L2 tables.",
            ),
        )
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=words("fill"),
        clause=_FILL,
        hint="{field} is {actual} and must be -1: no block is mapped there. malloc does not set the entries of an L2 "
        "table; set all 16 to -1, then map (memset counts bytes, not ints).",
    ),
    Clue(
        rule="block-table",
        calls=CREATE,
        facets=("tables",),
        tags=words("shape", "null"),
        clause="Task 2/ceiling",
        hint="After {call} {field} is NULL, where {expected} must be: a block that is needed is not mapped. The number "
        "of blocks is initial_kv_len / 16, rounded up, and block n goes to block_table[n / 16][n % 16].",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=words("shape", "null"),
        clause=_TABLE,
        hint="After {call} {field} is NULL, where {expected} must be: logical block n stands at "
        "block_table[n / 16][n % 16].",
    ),
    Clue(
        rule="block-table",
        calls=CREATE,
        facets=("tables",),
        tags=words("shape", "ok"),
        clause="Task 2/l2-needed",
        hint="{field} is an L2 table and must be NULL: no block belongs there. Is the number of blocks "
        "initial_kv_len / 16, rounded up, and does block n go to block_table[n / 16][n % 16]?",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=words("shape"),
        clause="Part 2.2/l1-size",
        hint="{field} is {actual} and must be {expected}. An L1 slot holds an L2 table exactly where a block is "
        "mapped, and NULL elsewhere.",
    ),
    Clue(
        rule="block-table",
        calls=FORK,
        facets=("tables",),
        clause="Task 3/copy-tables",
        hint="{field} must be {expected}, as in the parent, and is {actual}. All 16 entries of every L2 table are "
        "copied.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=words("none-stored"),
        clause={**_TABLE, "create_sequence": "Task 2/ceiling"},
        hint="After {call} {field} is -1 and must be {expected}: a block that is needed is not mapped. The number of "
        "blocks is the number of KV records / 16, rounded up.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        clause=_TABLE,
        hint="After {call} {field} must be {expected}, and is {actual}: logical block n stands at "
        "block_table[n / 16][n % 16].",
    ),
    Clue(
        rule="block-table",
        facets=("fields",),
        part="kv_count",
        clause={
            "create_sequence": "Task 2/kv-count",
            "fork_sequence": "Task 3/kv-count",
            "append_kv": "Task 4/count-returns",
        },
        hint="After {call} {field} is {actual}; it must be {expected}.",
    ),
    Clue(
        rule="block-table",
        facets=("fields",),
        clause={"create_sequence": "Task 2/returns-sequence", "fork_sequence": "Task 3/kv-count"},
        hint="{call} must leave {field} at {expected}, not {actual}.",
    ),
)

COUNTS = (
    Clue(
        rule="ref-count",
        calls=INIT,
        facets=("ref_count",),
        clause="Task 1/ref-count-zero",
        hint="{field} must be {expected}, and is {actual}. Allocate ref_count with calloc(total_local_blocks, "
        "sizeof(int)), which sets all counts to 0.",
    ),
    Clue(
        rule="ref-count",
        calls=FORK,
        facets=("ref_count",),
        clause="Task 3/increment",
        hint="{field} must be {expected}, and is {actual}. The child uses every block of its parent: fork_sequence "
        "raises the ref_count of each mapped block by one.",
    ),
    Clue(
        rule="ref-count",
        calls=(*FREE, *DESTROY),
        facets=("ref_count",),
        clause="Task 2/free-decrement",
        hint="{field} must be {expected}, and is {actual}. free_sequence lowers the ref_count of every mapped block by "
        "exactly one.",
    ),
    Clue(
        rule="ref-count",
        calls=CREATE,
        facets=("ref_count",),
        clause="Task 2/map-blocks",
        hint="After {call} {field} must be {expected}, and is {actual}: a block that is mapped has ref_count 1, every "
        "other block keeps its own.",
    ),
    Clue(
        rule="ref-count",
        calls=APPEND,
        facets=("ref_count",),
        circumstances=words("new-page"),
        clause="Task 4/new-page",
        hint="After {call} {field} must be {expected}, and is {actual}: a new page has ref_count 1, every other block "
        "keeps its own.",
    ),
    Clue(
        rule="ref-count",
        facets=("ref_count",),
        clause="Part 2.3/ref-count",
        hint="After {call} {field} must be {expected}, and is {actual}: it counts the sequences that use the block.",
    ),
    Clue(
        rule="free-count",
        facets=("counters",),
        part="total_local_blocks",
        clause="Task 1/total-blocks",
        hint="After {call} {field} must be {expected}, and is {actual}. It is pool_size / 64, rounded down; only "
        "llm_init sets it.",
    ),
    Clue(
        rule="free-count",
        calls=INIT,
        facets=("counters",),
        part="free_local_blocks",
        clause="Task 1/free-blocks",
        hint="After {call} {field} must be {expected}, the same as total_local_blocks, and is {actual}.",
    ),
    Clue(
        rule="free-count",
        calls=FREE,
        facets=("counters",),
        part="free_local_blocks",
        clause="Constraint 5/increment",
        hint="{field} must be {expected}, and is {actual}. It goes up by one for each block whose ref_count drops to "
        "0, and for no other.",
    ),
    Clue(
        rule="free-count",
        calls=FORK,
        facets=("counters",),
        part="free_local_blocks",
        clause="Constraint 5/decrement",
        hint="{field} must stay at {expected}, and is {actual}: a fork shares its parent's blocks and takes none.",
    ),
    Clue(
        rule="free-count",
        calls=APPEND,
        facets=("counters",),
        part="free_local_blocks",
        circumstances=words("in-place"),
        clause="Task 4/exclusive",
        hint="{field} must stay at {expected}, and is {actual}: this append writes in place and takes no block.",
    ),
    Clue(
        rule="free-count",
        facets=("counters",),
        clause="Constraint 5/decrement",
        hint="After {call} {field} must be {expected}, and is {actual}. It goes down by one for each block that is "
        "assigned, also for a copy, and up only when a ref_count drops to 0.",
    ),
)
