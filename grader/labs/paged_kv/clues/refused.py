"""Clues for calls that must succeed but report failure or return a wrong value."""

from __future__ import annotations

from grader.assignment.lab import Clue
from grader.labs.paged_kv.clues.words import (
    APPEND,
    CREATE,
    DESTROY,
    FORK,
    FREE,
    INIT,
    RETURNS,
    words,
    wrongly_refused,
    wrongly_refused_whole,
)

__all__ = ["REFUSED"]

_LOOKUPS = ("append_kv", "fork_sequence", "free_sequence")

REFUSED = (
    Clue(
        rule="list",
        calls=_LOOKUPS,
        facets=("reply",),
        never=_LOOKUPS,
        where=wrongly_refused_whole,
        clause="Part 2.5/offsetof",
        hint="No call ever finds a sequence: append_kv, fork_sequence and free_sequence refuse every id, though the "
        "sequence is in the list. The search is wrong. A node is not a Sequence: subtract offsetof(Sequence, node) "
        "from its address, and walk from active_seqs.next until you are back at &engine->active_seqs.",
    ),
    Clue(
        rule="return-value",
        calls=(*INIT, *CREATE, *FORK, *APPEND, *FREE),
        facets=("reply",),
        circumstances=words("only-never"),
        where=wrongly_refused_whole,
        clause=RETURNS,
        hint="{call} returns {actual} in every case, also where nothing speaks against it. Is it written yet? If it "
        "is, look which of its checks is always true.",
    ),
    *(
        Clue(
            rule=rule,
            calls=calls,
            facets=("reply",),
            circumstances=words(*circumstances),
            where=wrongly_refused_whole,
            clause=clause,
            hint=f"{{call}} {why}",
        )
        for rule, calls, circumstances, clause, why in (
            (
                "validation",
                INIT,
                ("only-smallest-pool",),
                "Task 1/small-pool",
                (
                    "refuses a pool of exactly 64 bytes, and no larger one: off by one. Only pool_size < BLOCK_SIZE is "
                    "too small."
                ),
            ),
            (
                "validation",
                INIT,
                ("only-ragged-pool",),
                "Task 1/total-blocks",
                (
                    "refuses a pool_size that is no multiple of 64. The bytes behind the last whole block are left "
                    "alone, the pool is accepted."
                ),
            ),
            (
                "validation",
                CREATE,
                ("only-exact-fit",),
                "Task 2/no-room",
                (
                    "refuses exactly when as many blocks are needed as are free: off by one. Refuse only when more are "
                    "needed than free_local_blocks."
                ),
            ),
            (
                "validation",
                CREATE,
                ("only-max-length",),
                "Task 2/too-long",
                "refuses exactly 256 blocks: off by one. Only more than 256 blocks are too many.",
            ),
            (
                "validation",
                CREATE,
                ("only-several-tables",),
                "Task 2/too-long",
                (
                    "refuses every prompt that needs more than 16 blocks (256 records) and no shorter one. The limit "
                    "is 256 blocks, which is 4096 records: compare blocks with blocks."
                ),
            ),
            (
                "validation",
                (*CREATE, *FORK),
                ("only-id-zero",),
                "Task 2/unique-id",
                "refuses the id 0, and accepts others. Any int is a valid id; only one that is in use is refused.",
            ),
            (
                "validation",
                (*CREATE, *FORK),
                ("only-id-negative",),
                "Task 2/unique-id",
                "refuses negative ids. Any int is a valid id; only one that is in use is refused.",
            ),
            (
                "validation",
                CREATE,
                ("only-some-sequence",),
                "Task 2/unique-id",
                (
                    "refuses as soon as there is a sequence, whatever its id. Only a seq_id that is in use is refused: "
                    "does the search compare the ids, and does it end at &engine->active_seqs?"
                ),
            ),
            (
                "validation",
                APPEND,
                ("only-last-logical-block",),
                "Task 4/full",
                (
                    "refuses a record of logical block 255, the last valid one: off by one. Records 0 to 4095 must be "
                    "accepted; only a logical index of 256 or more is refused."
                ),
            ),
            (
                "validation",
                APPEND,
                ("only-second-table",),
                "Task 4/full",
                (
                    "refuses as soon as the logical block is 16 or more, that is behind 256 records. The limit is 256 "
                    "blocks of 16 records: compare kv_count / 16 with 256."
                ),
            ),
            (
                "check-before-allocate",
                APPEND,
                ("in-place", "none-free"),
                "Task 4/exclusive",
                (
                    "refuses here, where no block is free, but it needs none: the slot is mapped and the ref_count of "
                    "its block is 1, so it writes in place. Check free_local_blocks only when a block is needed."
                ),
            ),
            (
                "check-before-allocate",
                APPEND,
                ("only-last-free-block",),
                "Task 4/oom",
                "refuses although one block is still free: off by one. Refuse only when free_local_blocks is 0.",
            ),
            (
                "check-before-allocate",
                FORK,
                ("none-free",),
                "Part 2.3/shared-prefix",
                (
                    "refuses here, where no block is free. A fork shares its parent's blocks and needs no free one: "
                    "it fails only for an unknown parent or a taken id."
                ),
            ),
            (
                "cow",
                APPEND,
                ("copy-on-write",),
                "Task 4/needs-cow",
                (
                    "refuses although a block is free. The block of its slot is shared (ref_count above 1), so it must "
                    "copy it to a free block and go on."
                ),
            ),
            (
                "list",
                _LOOKUPS,
                ("only-listed-not-first",),
                "Part 2.5/intrusive-list",
                (
                    "finds only the first sequence of the list. Follow next from node to node until you are back at "
                    "&engine->active_seqs."
                ),
            ),
            (
                "list",
                _LOOKUPS,
                ("only-listed-last",),
                "Part 2.5/intrusive-list",
                (
                    "does not find the last sequence of the list: the search ends one node too early. It ends when the "
                    "node is &engine->active_seqs, not when its next is."
                ),
            ),
            (
                "list",
                _LOOKUPS,
                ("only-listed-not-last",),
                "Part 2.5/intrusive-list",
                (
                    "finds only the last sequence of the list. Follow next from node to node until you are back at "
                    "&engine->active_seqs."
                ),
            ),
        )
    ),
    Clue(
        rule="destroy",
        calls=DESTROY,
        facets=("reply",),
        hint="llm_destroy must destroy all sequences that are left, free what belongs to the engine and return 0.",
    ),
    Clue(
        rule="validation",
        calls=INIT,
        facets=("reply",),
        where=wrongly_refused,
        clause="Task 1/small-pool",
        hint="llm_init must return the new engine for every pool of at least 64 bytes; without it no other call works.",
    ),
    Clue(
        rule="validation",
        calls=CREATE,
        facets=("reply",),
        where=wrongly_refused_whole,
        hint="{call} refuses what it must accept: the length is valid, nobody has this id, and enough blocks are "
        "free. Look at the return that it takes, and at what leads there: a check, or a helper that finds no block.",
    ),
    Clue(
        rule="validation",
        calls=APPEND,
        facets=("reply",),
        where=wrongly_refused_whole,
        hint="append_kv refuses what it must accept: the sequence exists, it is not full, and either no block is "
        "needed or one is free. Look at the return that it takes, and at what leads there: a check, or a helper that "
        "finds no sequence or no block.",
    ),
    Clue(
        rule="validation",
        calls=FORK,
        facets=("reply",),
        where=wrongly_refused_whole,
        clause="Task 3/returns-child",
        hint="fork_sequence refuses what it must accept: the parent exists, nobody has the new id, and a fork needs no "
        "free block. Look at the return that it takes, and at the condition that leads there.",
    ),
    Clue(
        rule="list",
        calls=FREE,
        facets=("reply",),
        where=wrongly_refused_whole,
        clause="Task 2/free-unknown",
        hint="{call} refuses although the sequence is in the list. Does the search reach it? A node is not a Sequence: "
        "subtract offsetof(Sequence, node) from its address, and walk until you are back at &engine->active_seqs.",
    ),
    Clue(
        rule="return-value",
        facets=("reply",),
        where=wrongly_refused,
        clause=RETURNS,
        hint="{call} does its work and then returns {actual}, as if it had failed. It must return {expected}.",
    ),
    Clue(
        rule="return-value",
        calls=FORK,
        facets=("reply",),
        hint="fork_sequence must return the child, a Sequence with the new id. By its seq_id it "
        "returns {actual}. Is that another Sequence, or the child with a wrong seq_id?",
    ),
    Clue(
        rule="return-value",
        facets=("reply",),
        hint="{call} returns {actual}; it must return {expected}. A successful call returns 0 or the sequence.",
    ),
)
"""Calls that must succeed but fail: not written yet, the id not found, a wrong limit, a wrong check."""
