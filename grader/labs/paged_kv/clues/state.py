"""Clues for a wrong state: the sequence, the choice of a block, traversal, copy-on-write."""

from __future__ import annotations

from grader.assignment.lab import STORED, Clue
from grader.labs.paged_kv.clues.words import (
    APPEND,
    CREATE,
    DESTROY,
    FORK,
    FREE,
    takes_too_many,
    words,
)

__all__ = ["CHOICE", "COPY_ON_WRITE", "MIXED_UP", "TRAVERSAL"]

MIXED_UP = (
    Clue(
        rule="block-table",
        calls=FORK,
        tags=words("other-sequence"),
        facets=("tables", "fields"),
        clause="Task 3/copy-tables",
        hint="{call} works on another sequence than the one that it was asked for. {note}",
    ),
    Clue(
        rule="list",
        tags=words("other-sequence"),
        facets=("tables", "fields", "list"),
        clause={
            "create_sequence": "Part 2.5/intrusive-list",
            "free_sequence": "Task 2/free-detach",
            "append_kv": "Part 2.5/offsetof",
        },
        hint="{call} works on another sequence than the one that it was asked for. {note} Look at the search for the "
        "id and at what it returns.",
    ),
)

CHOICE = (
    Clue(
        rule="first-fit",
        calls=(*CREATE, *APPEND),
        facets=("tables",),
        tags=words("mapping", "none-stored"),
        circumstances=words(STORED),
        clause="Constraint 3/first-fit",
        hint="{call} stores -1 at {field}: its search found no block, though {expected} is free. {note} Does it look "
        "at every block from 0 to total_local_blocks - 1, the last one included?",
    ),
    *(
        Clue(
            rule=rule,
            calls=calls,
            facets=("tables",),
            tags=words("misplaced"),
            clause="Part 2.2/table-walk",
            hint=f"{{note}} Logical block n stands at block_table[n / 16][n % 16]{why}.",
        )
        for rule, calls, why in (("block-table", CREATE, ""), ("address", APPEND, ", and n is kv_count / 16"))
    ),
    Clue(
        rule="block-table",
        calls=CREATE,
        facets=("tables",),
        tags=words("one-too-many"),
        clause="Task 2/ceiling",
        hint="{call} maps a block that is not needed: {field} is block {actual} and must be -1. The number of blocks "
        "is initial_kv_len / 16, rounded up.",
    ),
    Clue(
        rule="block-table",
        calls=CREATE,
        facets=("tables",),
        tags=words("shape", "ok"),
        where=takes_too_many,
        clause="Task 2/ceiling",
        hint="{call} maps a block that is not needed: {field} is an L2 table and must be NULL. The number of blocks "
        "is initial_kv_len / 16, rounded up.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("tables",),
        tags=words("remapped"),
        clause="Task 4/exclusive",
        circumstances=words("in-place"),
        hint="append_kv copies a block that needs no copy: the ref_count of {expected} is 1, so nobody else uses it. "
        "It is written in place.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("tables",),
        tags=words("remapped"),
        clause="Task 4/needs-new-page",
        hint="append_kv changes an entry that it must leave alone ({field}). Only a shared block (ref_count above 1) "
        "that is about to be written is copied; a full block is never written again.",
        where=lambda judgement: "copy-on-write" not in judgement.expected.circumstances,
    ),
    Clue(
        rule="first-fit",
        facets=("choice",),
        tags=words("no-block"),
        clause="Constraint 3/first-fit",
        hint="{call} goes on with {actual}: its search found none. The right one is {expected}. Does it look at every "
        "block from 0 to total_local_blocks - 1, the last one included?",
    ),
    Clue(
        rule="first-fit",
        facets=("choice",),
        tags=words("copy-on-write"),
        clause="Constraint 3/first-fit",
        hint="The copy too must go to {expected}; it went to {actual}. Search from 0 "
        "and take the first with ref_count 0.",
    ),
    Clue(
        rule="first-fit",
        facets=("choice",),
        clause="Constraint 3/first-fit",
        hint="{call} takes {actual}; it must take {expected}. For every new block search from 0 to "
        "total_local_blocks - 1 and take the first with ref_count 0; the blocks of a sequence need not be neighbours.",
    ),
    Clue(
        rule="first-fit",
        calls=(*CREATE, *APPEND),
        facets=("tables",),
        tags=words("mapping", "none-stored", "free-at-the-ends"),
        clause="Constraint 3/first-fit",
        hint="{field} is -1 after {call}, though {expected} is free. {note} Does the search really look at every "
        "block from 0 to total_local_blocks - 1, the last one included?",
    ),
)

TRAVERSAL = tuple(
    Clue(rule="traversal", calls=calls, facets=facets, circumstances=words(shape), clause=clause, hint=hint)
    for calls, facets, clause in (
        ((*FREE, *DESTROY), ("ref_count", "counters"), "Task 2/free-all-slots"),
        (FORK, ("tables",), "Task 3/copy-tables"),
    )
    for shape, hint in (
        (
            "holes",
            (
                "The sequence has NULL slots in its L1 table before used ones. {call} must visit all 16 L1 slots; a "
                "NULL slot is skipped and does not end the loop."
            ),
        ),
        (
            "unmapped-entries",
            (
                "The L2 table has -1 entries before mapped ones. {call} must visit all 16 entries; a -1 is skipped "
                "and does not end the loop."
            ),
        ),
    )
)

COPY_ON_WRITE = (
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("tables",),
        circumstances=words("copy-on-write"),
        clause="Part 2.3/no-shared-write",
        hint="The block is shared (ref_count above 1), so it must be copied before it is written: {field} must become "
        "{expected} and is {actual}. Copy to a free block, put the new id into this sequence's L2 table and leave the "
        "other sequence alone.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("copied",),
        tags=words("shared-block"),
        circumstances=words("copy-on-write"),
        clause="Part 2.3/no-shared-write",
        hint="The shared block itself was written ({field}). All other sequences that share it see the change; write "
        "only to the copy.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("copied",),
        tags=words("target"),
        circumstances=words("copy-on-write"),
        clause="Task 4/store",
        hint="The block is copied, but {note} It must be stored in the new block, after the copy.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("copied",),
        tags=words("new-block"),
        circumstances=words("copy-on-write"),
        clause="Task 4/cow-copy",
        hint="{field} was not copied from the old block. The new block must hold all 64 bytes of the old one, also the "
        "slots that nobody has used yet: memcpy(new, old, BLOCK_SIZE).",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("copied",),
        circumstances=words("copy-on-write"),
        clause="Task 4/cow-copy",
        hint="The copy writes outside the new block ({field}): exactly 64 bytes are copied. Pointer arithmetic counts "
        "elements, not bytes.",
    ),
    *(
        Clue(
            rule="cow",
            calls=APPEND,
            facets=("ref_count",),
            tags=words(tag),
            circumstances=words("copy-on-write"),
            clause="Task 4/cow-counts",
            hint=f"{{field}} must be {{expected}} after the copy, and is {{actual}}: {why}",
        )
        for tag, why in (
            ("old-block", "it is the old block, which this sequence no longer uses. Its ref_count goes down by one."),
            ("new-block", "it is the new block, which only this sequence uses. Its ref_count becomes 1."),
            ("other-block", "it is neither the old nor the new block. Copy-on-write changes these two only."),
        )
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("written",),
        circumstances=words("copy-on-write"),
        tags=words("target"),
        clause="Part 2.2/offset",
        hint="The block is copied, but {note}",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("written",),
        circumstances=words("copy-on-write"),
        clause="Task 4/store",
        hint="After the copy kv_data must be stored in the new block, at the same offset, and nowhere else ({field}).",
    ),
    Clue(
        rule="cow",
        calls=FORK,
        facets=("tables",),
        tags=words("remapped"),
        clause="Part 2.3/shared-prefix",
        hint="{field} must be {expected}, the parent's own block, not {actual}: a fork shares its parent's blocks. "
        "Copying waits until somebody appends.",
    ),
)
