"""Where the state is not what it must be: pool, tables, counts, list."""

from __future__ import annotations

from grader.lab import Clue
from grader.labs.paged_kv_clue_words import APPEND, DESTROY, FORK, FREE, words

__all__ = ["ADDRESS", "CHOICE", "COPY_ON_WRITE", "COUNTS", "LIST", "POOL", "TABLES", "TRAVERSAL"]

CHOICE = (
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("tables",),
        tags=words("remapped"),
        hint="append_kv copied a block that needed no copy. Only a shared block (ref_count above 1) that is about "
        "to be "
        "written is copied; a full block is never written again.",
        where=lambda judgement: "copy-on-write" not in judgement.expected.circumstances,
    ),
    Clue(
        rule="first-fit",
        facets=("choice",),
        tags=words("copy-on-write"),
        hint="The copy too goes to the first free block: search from 0 and take the first with ref_count 0.",
    ),
    Clue(
        rule="first-fit",
        facets=("choice",),
        hint="Search from block 0 to total_local_blocks - 1 for every new block and take the first with ref_count 0.",
    ),
)

TRAVERSAL = tuple(
    Clue(rule="traversal", calls=calls, facets=facets, circumstances=words(shape), hint=hint)
    for calls, facets in (((*FREE, *DESTROY), ("ref_count", "counters")), (FORK, ("tables",)))
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
        hint="The block is shared (ref_count above 1). Copy it to a free block, put the new block into this sequence's "
        "L2 table and leave the other sequence alone.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("copied",),
        tags=words("shared-block"),
        circumstances=words("copy-on-write"),
        hint="The shared block itself was written. All other sequences that share it see the change; write only to the "
        "copy.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("copied",),
        tags=words("new-block"),
        circumstances=words("copy-on-write"),
        hint="The new block must hold all 64 bytes of the old one, also the slots that nobody has used yet: "
        "memcpy(new, old, BLOCK_SIZE).",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("copied",),
        circumstances=words("copy-on-write"),
        hint="The copy wrote outside the new block: exactly 64 bytes are copied. Pointer arithmetic counts "
        "elements, not bytes.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("ref_count",),
        circumstances=words("copy-on-write"),
        hint="After a copy the old block has one user less (ref_count - 1) and the new block exactly one (ref_count "
        "1).",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("written",),
        circumstances=words("copy-on-write"),
        hint="After the copy kv_data must be stored in the new block, at the same offset.",
    ),
    Clue(
        rule="cow",
        calls=FORK,
        facets=("tables",),
        tags=words("remapped"),
        hint="fork_sequence shares the parent's blocks: the child's entries are the same block ids. Copying waits "
        "until "
        "somebody appends.",
    ),
)

POOL = (
    Clue(
        rule="destroy",
        calls=DESTROY,
        facets=("untouched",),
        hint="llm_destroy wrote to the pool. The pool belongs to the caller and stays as it is.",
    ),
    Clue(
        rule="no-premature-write",
        facets=("untouched",),
        tags=words("zeroed"),
        hint="{call} zeroes memory of the pool ({field}). Only append_kv may write there; the grader looks for the "
        "values "
        "that it put in before.",
    ),
    Clue(
        rule="no-premature-write",
        facets=("untouched",),
        hint="{call} writes to the pool ({field}). Only append_kv may write there.",
    ),
)

ADDRESS = (
    Clue(
        rule="address",
        calls=APPEND,
        facets=("tables",),
        tags=words("mapping"),
        hint="append_kv maps its block at the wrong place. logical = kv_count / 16, then block_table[logical / 16]"
        "[logical % 16].",
    ),
    Clue(
        rule="block-table",
        calls=APPEND,
        facets=("tables",),
        tags=words("fill"),
        circumstances=words("l2-missing"),
        hint="A new L2 table must have -1 in every entry that is not mapped, also when append_kv makes it.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("tables",),
        tags=words("fill"),
        hint="append_kv maps a block where none belongs. logical = kv_count / 16, then block_table[logical / 16]"
        "[logical % 16].",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("written",),
        tags=words("target"),
        hint="kv_data belongs in slot kv_count % 16 of the block, 64 * block + 4 * slot bytes after pool_base_ptr.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("written",),
        tags=words("zeroed"),
        hint="append_kv zeroes words that it does not own ({field}). It writes the 4 bytes of kv_data and nothing "
        "else.",
    ),
    Clue(
        rule="address",
        calls=APPEND,
        facets=("written",),
        hint="append_kv writes where it must not ({field}). It stores the 4 bytes of kv_data and nothing else.",
    ),
)

TABLES = (
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=words("shared"),
        hint="The child must have tables of its own. Here it uses the parent's, so a change in one shows in the other.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=words("fill"),
        hint="Every entry of an L2 table that is not mapped must be -1; malloc does not set it.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=words("shape"),
        hint="An L1 slot holds an L2 table exactly where a block is mapped, and NULL elsewhere.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        hint="{wanted}: logical block n stands at block_table[n / 16][n % 16].",
    ),
    Clue(
        rule="block-table",
        facets=("fields",),
        hint="After {call}: {wanted}.",
    ),
)

COUNTS = (
    Clue(
        rule="ref-count",
        calls=FORK,
        facets=("ref_count",),
        hint="The child uses every block of its parent: fork_sequence raises the ref_count of each by one.",
    ),
    Clue(
        rule="ref-count",
        calls=FREE,
        facets=("ref_count",),
        hint="free_sequence lowers the ref_count of every mapped block by exactly one; others may still use it.",
    ),
    Clue(
        rule="ref-count",
        facets=("ref_count",),
        hint="{wanted}: it counts the sequences that use the block (a new block has 1).",
    ),
    Clue(
        rule="free-count",
        calls=FREE,
        facets=("counters",),
        field="free_local_blocks",
        hint="free_local_blocks goes up by one for each block whose ref_count drops to 0, and for no other.",
    ),
    Clue(
        rule="free-count",
        facets=("counters",),
        hint="{wanted}. free_local_blocks goes down by one for each block that is "
        "assigned and up by one when a ref_count drops to 0.",
    ),
)

LIST = (
    Clue(
        rule="list",
        facets=("list",),
        tags=words("order"),
        hint="A new sequence goes to the tail of the list, between head->prev and the dummy head.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        tags=words("prev"),
        hint="The prev links do not mirror the next links. Inserting a node changes four pointers, removing "
        "one changes two.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        calls=FREE,
        hint="free_sequence must take the node out of the ring: node->prev->next = node->next and node->next->prev = "
        "node->prev, before the Sequence is freed.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        hint="The list must be a ring through the dummy head: in an empty list prev and next point to the head itself.",
    ),
)
