"""The mistakes of Homework 3: what each looks like, which rule it breaks, and what to tell the student.

The first clue that fits is taken, so the special ones stand before the general ones. Hints use the handout's words.
"""

from __future__ import annotations

from grader.lab import SEVERAL_TARGETS, Clue
from reference.model import Judgement

__all__ = ["CLUES"]

_APPEND = ("append_kv",)
_CREATE = ("create_sequence",)
_FORK = ("fork_sequence",)
_FREE = ("free_sequence",)
_INIT = ("llm_init",)
_DESTROY = ("llm_destroy",)
_STOPS = ("crash", "crash-wild", "hang", "left", "stopped", "unreadable")


def _words(*words: str) -> frozenset[str]:
    return frozenset(words)


def _refuses(text: str) -> bool:
    return text in ("NULL", "-1")


def _wrongly_accepted(judgement: Judgement) -> bool:
    return judgement.expected.refused and not _refuses(judgement.actual.text)


def _wrongly_refused(judgement: Judgement) -> bool:
    return not judgement.expected.refused and _refuses(judgement.actual.text)


_NULL_ENGINE = (
    Clue(
        rule="null-check",
        circumstances=_words("null-engine"),
        hint="{call} gets a NULL engine here. Check engine == NULL before anything else and return NULL or -1.",
    ),
)

_ISOLATION = (
    Clue(
        rule="isolation",
        facets=("isolation",),
        hint="A call on one engine changed another engine. Everything that belongs to an engine must be reached "
        "through the engine pointer of the call, never through a global or static variable.",
    ),
    Clue(
        rule="isolation",
        circumstances=_words(SEVERAL_TARGETS),
        hint="With two engines {call} mixes them up. Look for global or static variables that remember an engine, a "
        "pool, a sequence or an id: each engine must have its own.",
    ),
)

_ENDINGS = (
    Clue(
        rule="check-before-allocate",
        calls=_APPEND,
        kinds=_STOPS,
        circumstances=_words("none-free"),
        hint="append_kv needs a new block here and none is free. Compare free_local_blocks with 0 and return -1 before "
        "you look for a block.",
    ),
    Clue(
        rule="check-before-allocate",
        calls=_CREATE,
        kinds=_STOPS,
        circumstances=_words("none-free"),
        hint="More blocks are needed than are free. create_sequence must find that out first and return NULL.",
    ),
    Clue(
        rule="validation",
        kinds=_STOPS,
        circumstances=_words("sequence-full"),
        hint="The sequence is full: logical block 256 does not exist. append_kv must return -1.",
    ),
    Clue(
        rule="validation",
        kinds=_STOPS,
        circumstances=_words("too-long"),
        hint="More than 256 blocks are needed: create_sequence must return NULL.",
    ),
    *(
        Clue(
            rule="validation",
            kinds=_STOPS,
            circumstances=_words(word),
            hint="{call} must be refused here ({clause}). Is the search for the id right when nobody has it, and is "
            "its result checked before it is used?",
        )
        for word in ("unknown-id", "id-taken", "bad-length", "small-pool", "null-pool")
    ),
    Clue(
        rule="block-table",
        calls=_CREATE,
        kinds=("crash-wild",),
        hint="create_sequence follows a pointer at {line} that was never set. malloc does not clear memory: all 16 "
        "slots of a new L1 table must be set to NULL first.",
    ),
    Clue(
        rule="traversal",
        kinds=_STOPS,
        circumstances=_words("holes"),
        hint="The L1 table has empty slots between used ones here. {call} must look at all 16 slots and pass over "
        "those that are NULL.",
    ),
    Clue(
        rule="traversal",
        calls=_FORK,
        kinds=("hang",),
        hint="fork_sequence does not come back at {line}. Does the loop over the 16 L1 slots go on when a slot is "
        "NULL?",
    ),
    Clue(
        rule="list",
        kinds=("hang",),
        hint="{call} does not come back; it loops at {line}. The list is a ring: a walk ends when it is back at "
        "&engine->active_seqs, and the node that you free must not be used to go on.",
    ),
    Clue(
        rule="memory-error",
        kinds=("left",),
        hint="{call} ends the whole program at {line}. A call returns NULL or -1 when it cannot do its work.",
    ),
)

_MEMORY = (
    Clue(
        rule="destroy",
        calls=_DESTROY,
        kinds=("free-foreign", "free-inside"),
        hint="llm_destroy frees at {line} what malloc never returned. The pool belongs to the caller, and the dummy "
        "head of the list is a part of the engine: neither is freed by itself.",
    ),
    Clue(
        rule="memory-error",
        kinds=("double-free",),
        hint="The memory is freed a second time at {line}. Each table, Sequence and engine is freed exactly once.",
    ),
    Clue(
        rule="memory-error",
        kinds=("free-foreign", "free-inside"),
        hint="free at {line} gets an address that malloc, calloc or realloc did not return.",
    ),
    Clue(
        rule="memory-error",
        kinds=("overrun", "underrun", "too-small"),
        hint="The allocation made at {line} is too small, or an index runs over its end. An L1 table is 16 pointers "
        "(16 * sizeof(int *)), an L2 table 16 ints, a Sequence sizeof(Sequence), ref_count one int for each block.",
    ),
    Clue(
        rule="memory-error",
        kinds=("write-after-free",),
        hint="Memory is written after it was freed. Take what you need out of a Sequence or node before you free it.",
    ),
    Clue(
        rule="memory-error",
        kinds=("InvalidRead", "InvalidWrite", "InvalidJump", "InvalidFree", "MismatchedFree", "Overlap"),
        hint="Valgrind sees an access at {line} to memory that is not yours (any more). Is an index too large, or was "
        "the memory freed before?",
    ),
    Clue(
        rule="memory-error",
        kinds=("UninitCondition", "UninitValue", "SyscallParam"),
        hint="Valgrind sees at {line} a value that was never set. malloc does not clear memory: set every entry of a "
        "table and every field before you read it.",
    ),
)

_REPLIES = (
    Clue(
        rule="check-before-allocate",
        facets=("reply",),
        circumstances=_words("none-free"),
        where=_wrongly_accepted,
        hint="{call} needs more blocks than are free and must be refused before anything changes.",
    ),
    Clue(
        rule="validation",
        facets=("reply",),
        where=_wrongly_accepted,
        hint="{call} must be refused here: {clause}.",
    ),
    Clue(
        rule="check-before-allocate",
        calls=_APPEND,
        facets=("reply",),
        circumstances=_words("none-free", "in-place"),
        where=_wrongly_refused,
        hint="No block is free, but this append needs none: its slot is mapped and ref_count is 1, so it writes in "
        "place. Refuse only when a block is needed.",
    ),
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("reply",),
        circumstances=_words("copy-on-write"),
        where=lambda judgement: _wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="The block is shared, so append_kv must copy it and go on; it must not be refused while a block is free.",
    ),
    Clue(
        rule="destroy",
        calls=_DESTROY,
        facets=("reply",),
        hint="llm_destroy must destroy all sequences that are left, free what belongs to the engine and return 0.",
    ),
    Clue(
        rule="validation",
        calls=_INIT,
        facets=("reply",),
        where=_wrongly_refused,
        hint="llm_init must return the new engine for every pool of at least 64 bytes; without it no other call works.",
    ),
    Clue(
        rule="validation",
        calls=_CREATE,
        facets=("reply",),
        where=lambda judgement: _wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="{call} refuses what it must accept. Check the limits: a pool of 64 bytes is enough, lengths from 1 to "
        "4096 records are valid, exactly 256 blocks and exactly as many as are free are allowed, any free id too.",
    ),
    Clue(
        rule="validation",
        calls=_APPEND,
        facets=("reply",),
        where=lambda judgement: _wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="append_kv refuses what it must accept. It fails only for an unknown id, when logical block 256 would be "
        "needed, and when a block is needed and none is free.",
    ),
    Clue(
        rule="check-before-allocate",
        calls=_FORK,
        facets=("reply",),
        circumstances=_words("none-free"),
        where=lambda judgement: _wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="fork_sequence shares blocks and needs no free one; it fails only for an unknown parent or a taken id.",
    ),
    Clue(
        rule="list",
        calls=(*_FORK, *_FREE),
        facets=("reply",),
        where=lambda judgement: _wrongly_refused(judgement) and len(judgement.differences) > 1,
        hint="{call} does not find a sequence that is in the list. A node is not a Sequence: subtract "
        "offsetof(Sequence, node) from its address, and walk until you are back at &engine->active_seqs.",
    ),
    Clue(
        rule="return-value",
        facets=("reply",),
        where=_wrongly_refused,
        hint="{call} says with {actual} that it failed. It must return {expected}: {clause}.",
    ),
    Clue(
        rule="return-value",
        facets=("reply",),
        hint="{call} did its work but must return {expected}, not {actual}.",
    ),
)

_FAILING = (
    Clue(
        rule="check-before-allocate",
        calls=_APPEND,
        facets=("failing",),
        tags=_words("allocated"),
        hint="{call} needed a new block with none free; it must return -1 before allocating the L2 table (Task 4, OOM "
        "interception).",
        circumstances=_words("none-free"),
    ),
    Clue(
        rule="check-before-allocate",
        facets=("failing",),
        tags=_words("allocated"),
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

_CHOICE = (
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("tables",),
        tags=_words("remapped"),
        hint="append_kv copied a block that needed no copy. Only a shared block (ref_count above 1) that is about "
        "to be "
        "written is copied; a full block is never written again.",
        where=lambda judgement: "copy-on-write" not in judgement.expected.circumstances,
    ),
    Clue(
        rule="first-fit",
        facets=("choice",),
        tags=_words("copy-on-write"),
        hint="The copy too goes to the first free block: search from 0 and take the first with ref_count 0.",
    ),
    Clue(
        rule="first-fit",
        facets=("choice",),
        hint="Search from block 0 to total_local_blocks - 1 for every new block and take the first with ref_count 0.",
    ),
)

_TRAVERSAL = tuple(
    Clue(rule="traversal", calls=calls, facets=facets, circumstances=_words(shape), hint=hint)
    for calls, facets in (((*_FREE, *_DESTROY), ("ref_count", "counters")), (_FORK, ("tables",)))
    for shape, hint in (
        (
            "holes",
            (
                "The sequence has NULL slots in its L1 table before used ones. {call} must visit all 16 L1 slots; a "
                "NULL slot is passed over and does not end the loop."
            ),
        ),
        (
            "unmapped-entries",
            (
                "The L2 table has -1 entries before mapped ones. {call} must visit all 16 entries; a -1 is passed over "
                "and does not end the loop."
            ),
        ),
    )
)

_COPY_ON_WRITE = (
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("tables",),
        circumstances=_words("copy-on-write"),
        hint="The block is shared (ref_count above 1). Copy it to a free block, put the new block into this sequence's "
        "L2 table and leave the other sequence alone.",
    ),
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("copied",),
        tags=_words("shared-block"),
        circumstances=_words("copy-on-write"),
        hint="The shared block itself was written. All other sequences that share it see the change; write only to the "
        "copy.",
    ),
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("copied",),
        tags=_words("new-block"),
        circumstances=_words("copy-on-write"),
        hint="The new block must hold all 64 bytes of the old one, also the slots that nobody has used yet: "
        "memcpy(new, old, BLOCK_SIZE).",
    ),
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("copied",),
        circumstances=_words("copy-on-write"),
        hint="The copy wrote outside the new block: exactly 64 bytes are copied. Mind that pointer arithmetic "
        "counts in "
        "elements.",
    ),
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("ref_count",),
        circumstances=_words("copy-on-write"),
        hint="After a copy the old block has one user less (ref_count - 1) and the new block exactly one (ref_count "
        "1).",
    ),
    Clue(
        rule="cow",
        calls=_APPEND,
        facets=("written",),
        circumstances=_words("copy-on-write"),
        hint="After the copy kv_data must be stored in the new block, at the same offset.",
    ),
    Clue(
        rule="cow",
        calls=_FORK,
        facets=("tables",),
        tags=_words("remapped"),
        hint="fork_sequence shares the parent's blocks: the child's entries are the same block ids. Copying waits "
        "until "
        "somebody appends.",
    ),
)

_POOL = (
    Clue(
        rule="destroy",
        calls=_DESTROY,
        facets=("untouched",),
        hint="llm_destroy wrote to the pool. The pool belongs to the caller and stays as it is.",
    ),
    Clue(
        rule="no-premature-write",
        facets=("untouched",),
        tags=_words("zeroed"),
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

_ADDRESS = (
    Clue(
        rule="address",
        calls=_APPEND,
        facets=("tables",),
        tags=_words("mapping"),
        hint="append_kv maps its block at the wrong place. logical = kv_count / 16, then block_table[logical / 16]"
        "[logical % 16].",
    ),
    Clue(
        rule="block-table",
        calls=_APPEND,
        facets=("tables",),
        tags=_words("fill"),
        circumstances=_words("l2-missing"),
        hint="A new L2 table must have -1 in every entry that is not mapped, also when append_kv makes it.",
    ),
    Clue(
        rule="address",
        calls=_APPEND,
        facets=("tables",),
        tags=_words("fill"),
        hint="append_kv maps a block where none belongs. logical = kv_count / 16, then block_table[logical / 16]"
        "[logical % 16].",
    ),
    Clue(
        rule="address",
        calls=_APPEND,
        facets=("written",),
        tags=_words("target"),
        hint="kv_data belongs into slot kv_count % 16 of the block, 64 * block + 4 * slot bytes after pool_base_ptr.",
    ),
    Clue(
        rule="address",
        calls=_APPEND,
        facets=("written",),
        tags=_words("zeroed"),
        hint="append_kv zeroes words that it does not own ({field}). It writes the 4 bytes of kv_data and nothing "
        "else.",
    ),
    Clue(
        rule="address",
        calls=_APPEND,
        facets=("written",),
        hint="append_kv writes where it must not ({field}). It stores the 4 bytes of kv_data and nothing else.",
    ),
)

_TABLES = (
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=_words("shared"),
        hint="The child must have tables of its own. Here it uses the parent's, so a change in one shows in the other.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=_words("fill"),
        hint="Every entry of an L2 table that is not mapped must be -1; malloc does not set it.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        tags=_words("shape"),
        hint="An L1 slot holds an L2 table exactly where a block is mapped, and NULL elsewhere.",
    ),
    Clue(
        rule="block-table",
        facets=("tables",),
        hint="{field} must be {expected}, not {actual}: logical block n stands at block_table[n / 16][n % 16].",
    ),
    Clue(
        rule="block-table",
        facets=("fields",),
        hint="{call} must leave {field} at {expected}, not {actual}.",
    ),
)

_COUNTS = (
    Clue(
        rule="ref-count",
        calls=_FORK,
        facets=("ref_count",),
        hint="The child uses every block of its parent: fork_sequence raises the ref_count of each by one.",
    ),
    Clue(
        rule="ref-count",
        calls=_FREE,
        facets=("ref_count",),
        hint="free_sequence lowers the ref_count of every mapped block by exactly one; others may still use it.",
    ),
    Clue(
        rule="ref-count",
        facets=("ref_count",),
        hint="{field} must be {expected}, not {actual}: it counts the sequences that use the block (a new block has "
        "1).",
    ),
    Clue(
        rule="free-count",
        calls=_FREE,
        facets=("counters",),
        field="free_local_blocks",
        hint="free_local_blocks goes up by one for each block whose ref_count drops to 0, and for no other.",
    ),
    Clue(
        rule="free-count",
        facets=("counters",),
        hint="{field} must be {expected}, not {actual}. free_local_blocks goes down by one for each block that is "
        "assigned and up by one when a ref_count drops to 0.",
    ),
)

_LIST = (
    Clue(
        rule="list",
        facets=("list",),
        tags=_words("order"),
        hint="A new sequence goes to the tail of the list, between head->prev and the dummy head.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        tags=_words("prev"),
        hint="The prev links do not mirror the next links. Linking in sets four pointers, unlinking two.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        calls=_FREE,
        hint="free_sequence must take the node out of the ring: node->prev->next = node->next and node->next->prev = "
        "node->prev, before the Sequence is freed.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        hint="The list must be a ring through the dummy head: in an empty list prev and next point to the head itself.",
    ),
)

_LEAKS = (
    Clue(
        rule="traversal",
        kinds=("leak", "leak-whole"),
        calls=_DESTROY,
        circumstances=_words("holes"),
        hint="L2 tables behind a NULL slot of the L1 table are never freed. Visit all 16 slots and pass over the NULL "
        "ones.",
    ),
    Clue(
        rule="destroy",
        kinds=("leak-whole",),
        calls=_DESTROY,
        circumstances=_words("live-sequences"),
        hint="llm_destroy must destroy every sequence that is left: all of what was allocated at {line} is lost.",
    ),
    Clue(
        rule="destroy",
        kinds=("leak-whole",),
        calls=_DESTROY,
        hint="Nothing of what was allocated at {line} is freed. llm_destroy must free the ref_count array and the "
        "engine, and every sequence that is left.",
    ),
    Clue(
        rule="leak",
        kinds=("leak", "leak-whole"),
        hint="What is allocated at {line} is never freed. Each L2 table, L1 table, Sequence, ref_count and engine "
        "needs "
        "its own free.",
    ),
)

_LAST = (
    Clue(
        rule="memory-error",
        kinds=("unreadable",),
        hint="After {call} the structures hold pointers or numbers that lead nowhere, so the rest cannot be judged.",
    ),
    Clue(
        rule="memory-error",
        kinds=("stops-under-valgrind",),
        hint="{call} works by chance only: it reads memory that was never set or is not yours. Run Valgrind on it.",
    ),
    Clue(
        rule="memory-error",
        kinds=_STOPS,
        hint="{call} ends the program at {line}. Which pointer is NULL, freed or never set there?",
    ),
)

CLUES: tuple[Clue, ...] = (
    *_NULL_ENGINE,
    *_ISOLATION,
    *_ENDINGS,
    *_MEMORY,
    *_REPLIES,
    *_FAILING,
    *_CHOICE,
    *_TRAVERSAL,
    *_COPY_ON_WRITE,
    *_POOL,
    *_ADDRESS,
    *_TABLES,
    *_COUNTS,
    *_LIST,
    *_LEAKS,
    *_LAST,
)
"""In the order in which they are tried."""
