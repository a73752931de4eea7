"""What a call returned, and what it did although it must fail."""

from __future__ import annotations

from grader.lab import Clue
from grader.labs.paged_kv_clue_words import (
    APPEND,
    CREATE,
    DESTROY,
    FORK,
    FREE,
    INIT,
    words,
    wrongly_accepted,
    wrongly_refused,
)

__all__ = ["FAILING", "REPLIES"]

REPLIES = (
    Clue(
        rule="check-before-allocate",
        facets=("reply",),
        circumstances=words("none-free"),
        where=wrongly_accepted,
        hint="{call} needs more blocks than are free: it must return {refusal} before anything changes.",
    ),
    Clue(
        rule="validation",
        facets=("reply",),
        where=wrongly_accepted,
        hint="{call} must return {refusal} here: {clause}.",
    ),
    Clue(
        rule="check-before-allocate",
        calls=APPEND,
        facets=("reply",),
        circumstances=words("none-free", "in-place"),
        where=wrongly_refused,
        hint="No block is free, but this append needs none: its slot is mapped and ref_count is 1, so it writes in "
        "place. Refuse only when a block is needed.",
    ),
    Clue(
        rule="cow",
        calls=APPEND,
        facets=("reply",),
        circumstances=words("copy-on-write"),
        where=lambda judgement: wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="The block is shared, so append_kv must copy it and go on; it must not be refused while a block is free.",
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
        hint="llm_init must return the new engine for every pool of at least 64 bytes; without it no other call works.",
    ),
    Clue(
        rule="validation",
        calls=CREATE,
        facets=("reply",),
        where=lambda judgement: wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="{call} refuses what it must accept. Check the limits: a pool of 64 bytes is enough, lengths from 1 to "
        "4096 records are valid, exactly 256 blocks and exactly as many as are free are allowed, any free id too.",
    ),
    Clue(
        rule="validation",
        calls=APPEND,
        facets=("reply",),
        where=lambda judgement: wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="append_kv refuses what it must accept. It fails only for an unknown id, when logical block 256 would be "
        "needed, and when a block is needed and none is free.",
    ),
    Clue(
        rule="check-before-allocate",
        calls=FORK,
        facets=("reply",),
        circumstances=words("none-free"),
        where=lambda judgement: wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="fork_sequence shares blocks and needs no free one; it fails only for an unknown parent or a taken id.",
    ),
    Clue(
        rule="list",
        calls=(*FORK, *FREE),
        facets=("reply",),
        where=lambda judgement: wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="{call} does not find a sequence that is in the list. A node is not a Sequence: subtract "
        "offsetof(Sequence, node) from its address, and walk until you are back at &engine->active_seqs.",
    ),
    Clue(
        rule="return-value",
        facets=("reply",),
        where=wrongly_refused,
        hint="{call} says with {actual} that it failed. It must return {expected}: {clause}.",
    ),
    Clue(
        rule="return-value",
        facets=("reply",),
        hint="{call} did its work but must return {expected}, not {actual}.",
    ),
)

FAILING = (
    Clue(
        rule="check-before-allocate",
        calls=APPEND,
        facets=("failing",),
        tags=words("allocated"),
        hint="{call} needed a new block with none free; it must return -1 before allocating the L2 table (Task 4, OOM "
        "interception).",
        circumstances=words("none-free"),
    ),
    Clue(
        rule="check-before-allocate",
        facets=("failing",),
        tags=words("allocated"),
        hint="{call} allocates memory although it must fail: {clause}. Make every check before the first malloc, also "
        "when you free the memory again.",
    ),
    Clue(
        rule="check-before-allocate",
        facets=("failing",),
        hint="{call} must fail and change nothing ({clause}), but {field} changed. Make every check before the first "
        "change.",
    ),
)
