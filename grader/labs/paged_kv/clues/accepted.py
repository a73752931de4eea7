"""Clues for calls that must fail, but succeed, or fail only after they changed or allocated something."""

from __future__ import annotations

from grader.assignment.lab import Clue
from grader.labs.paged_kv.clues.words import (
    APPEND,
    CREATE,
    FORK,
    FREE,
    INIT,
    accepted_for_nothing,
    words,
    wrongly_accepted,
)

__all__ = ["ACCEPTED", "FAILING"]

ACCEPTED = (
    *(
        Clue(
            rule="check-before-allocate",
            calls=calls,
            facets=("reply",),
            circumstances=words("none-free", *circumstances),
            where=wrongly_accepted,
            hint=f"{{call}} must {refusal} here: {why}. That check is missing, comes too late or compares the wrong "
            "numbers.",
        )
        for calls, circumstances, refusal, why in (
            (
                CREATE,
                (),
                "return NULL",
                "it needs more blocks than free_local_blocks says are free (needed: initial_kv_len / 16, rounded up)",
            ),
            (
                APPEND,
                ("copy-on-write",),
                "return -1",
                "its block is shared (ref_count above 1), so it needs a block for the copy, and none is free",
            ),
            (
                APPEND,
                (),
                "return -1",
                "its slot is -1, so it needs a new block, and none is free (free_local_blocks is 0)",
            ),
        )
    ),
    *(
        Clue(
            rule="validation",
            calls=calls,
            facets=("reply",),
            circumstances=words(word),
            where=accepted_for_nothing,
            hint="{call} must return {expected} here, not {actual}: no sequence has this id. It does nothing, which is "
            "right, but must say so: look at the return that is reached when the whole list was searched in vain.",
        )
        for calls, word in ((FREE, "unknown-id"), (APPEND, "unknown-id"))
    ),
    *(
        Clue(
            rule="validation",
            calls=calls,
            facets=("reply",),
            circumstances=words(*circumstances),
            where=wrongly_accepted,
            hint=f"{{call}} must return {{expected}} here: {why}",
        )
        for calls, circumstances, why in (
            (INIT, ("null-pool",), "pool_addr is NULL. The check of pool_addr is missing."),
            (
                INIT,
                ("small-pool",),
                "pool_size is below 64, so not even one block fits. Compare pool_size with BLOCK_SIZE.",
            ),
            (
                CREATE,
                ("bad-length",),
                (
                    "initial_kv_len is 0 or negative, and only lengths of 1 and more are valid. Both must be refused: "
                    "compare with <= 0, not with < 0 or == 0, and as an int; what is unsigned is never negative."
                ),
            ),
            (
                CREATE,
                ("id-taken",),
                (
                    "a sequence with this seq_id is in the list already. The search for it is missing, does not look "
                    "at every sequence, or compares something else than its seq_id (a node is no Sequence: offsetof)."
                ),
            ),
            (
                FORK,
                ("id-taken",),
                (
                    "new_seq_id belongs to a sequence already. The search for it is missing, does not look at every "
                    "sequence, or compares something else than its seq_id (a node is no Sequence: offsetof)."
                ),
            ),
            (FORK, ("unknown-id",), "no sequence has the parent's id. Check that the parent was found."),
            (
                (*APPEND, *FREE),
                ("unknown-id",),
                "no sequence has this id. Check that the sequence was found before you use it. {note}",
            ),
            (
                CREATE,
                ("too-long",),
                (
                    "more than 256 blocks are needed, that is more than 4096 KV records. Compare the blocks needed "
                    "with 256 (MAX_LOGICAL_BLOCKS), not only with those that are free."
                ),
            ),
            (
                APPEND,
                ("sequence-full",),
                (
                    "the sequence is full (kv_count / 16 is 256 or more). Check the logical index before anything else "
                    "is done with it."
                ),
            ),
        )
    ),
    Clue(
        rule="validation",
        facets=("reply",),
        where=wrongly_accepted,
        hint="{call} must return {expected} here: {clause}.",
    ),
)
"""Calls that must fail but succeed: which check is missing, by circumstance."""

FAILING = (
    Clue(
        rule="check-before-allocate",
        calls=APPEND,
        facets=("failing",),
        tags=words("allocated"),
        clause="Task 4/oom",
        hint="{call} needs a new block and none is free; it must return -1 before it allocates the L2 table, not "
        "after.",
        circumstances=words("none-free"),
    ),
    Clue(
        rule="check-before-allocate",
        facets=("failing",),
        tags=words("allocated"),
        clause="Constraint 2/contract",
        hint="The call is refused, as it must be, but {call} has allocated memory before it checked this: "
        "{clause}. Make every check before the first malloc; to free the memory again is not enough.",
    ),
    Clue(
        rule="check-before-allocate",
        facets=("failing",),
        tags=words("other-sequence"),
        clause="Constraint 2/contract",
        hint="{call} must fail and change nothing ({clause}). {note}",
    ),
    Clue(
        rule="check-before-allocate",
        facets=("failing",),
        clause="Constraint 2/contract",
        hint="The call is refused, as it must be, but {call} has changed {field} before it checked this: "
        "{clause}. Make every check before the first change.",
    ),
)
