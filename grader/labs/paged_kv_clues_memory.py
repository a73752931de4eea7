"""Crashes, hangs, leaks and other mistakes with memory, and the mistakes that come before all others."""

from __future__ import annotations

from grader.lab import SEVERAL_TARGETS, Clue
from grader.labs.paged_kv_clue_words import APPEND, CREATE, DESTROY, FORK, STOPS, words

__all__ = ["ENDINGS", "ISOLATION", "LAST", "LEAKS", "MEMORY", "NULL_ENGINE"]

NULL_ENGINE = (
    Clue(
        rule="null-check",
        circumstances=words("null-engine"),
        hint="{call} gets a NULL engine here. Check engine == NULL before anything else: it must return {refusal}.",
    ),
)

ISOLATION = (
    Clue(
        rule="isolation",
        facets=("isolation",),
        hint="A call on one engine changed another engine. Everything that belongs to an engine must be reached "
        "through the engine pointer of the call, never through a global or static variable.",
    ),
    Clue(
        rule="isolation",
        circumstances=words(SEVERAL_TARGETS),
        hint="With two engines, at the same time or one after the other, {call} mixes them up. Look for global or "
        "static variables that remember an engine, a pool, a sequence or an id: each engine must have its own.",
    ),
)

ENDINGS = (
    Clue(
        rule="check-before-allocate",
        calls=APPEND,
        kinds=STOPS,
        circumstances=words("none-free"),
        hint="append_kv needs a new block here and none is free. It must return -1: compare free_local_blocks with 0 "
        "before you look for a block.",
    ),
    Clue(
        rule="check-before-allocate",
        calls=CREATE,
        kinds=STOPS,
        circumstances=words("none-free"),
        hint="More blocks are needed than are free. create_sequence must return NULL before anything else.",
    ),
    Clue(
        rule="validation",
        kinds=STOPS,
        circumstances=words("sequence-full"),
        hint="The sequence is full: logical block 256 does not exist. append_kv must return -1.",
    ),
    Clue(
        rule="validation",
        kinds=STOPS,
        circumstances=words("too-long"),
        hint="More than 256 blocks are needed: create_sequence must return NULL.",
    ),
    *(
        Clue(
            rule="validation",
            kinds=STOPS,
            circumstances=words(word),
            hint="{call} must return {refusal} here ({clause}). Is the search for the id right when nobody has it, "
            "and is its result checked before it is used?",
        )
        for word in ("unknown-id", "id-taken", "bad-length", "small-pool", "null-pool")
    ),
    Clue(
        rule="block-table",
        calls=CREATE,
        kinds=("crash-wild",),
        hint="create_sequence follows a pointer at {line} that was never set. malloc does not clear memory: all 16 "
        "slots of a new L1 table must be set to NULL first.",
    ),
    Clue(
        rule="traversal",
        kinds=STOPS,
        circumstances=words("holes"),
        hint="The L1 table has empty slots between used ones here. {call} must look at all 16 slots and skip "
        "those that are NULL.",
    ),
    Clue(
        rule="traversal",
        calls=FORK,
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
        kinds=("left-jump",),
        hint="longjmp at {line} goes back into a call that has already returned. A jump must stay inside one call: "
        "setjmp first, then longjmp, both before the call returns.",
    ),
    Clue(
        rule="memory-error",
        kinds=("left",),
        hint="{call} ends the whole program at {line}. When it cannot do its work it must return {refusal}.",
    ),
)

MEMORY = (
    Clue(
        rule="destroy",
        calls=DESTROY,
        kinds=("free-pool", "free-foreign", "free-inside"),
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
        kinds=("free-pool",),
        hint="free at {line} gets the pool. It belongs to the caller of llm_init; you only store its address.",
    ),
    Clue(
        rule="memory-error",
        kinds=("free-foreign", "free-inside", "free-static", "free-stack"),
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
        kinds=("InvalidRead", "InvalidWrite", "InvalidJump", "InvalidFree", "MismatchedFree", "Overlap"),
        hint="Valgrind sees an access at {line} to memory that is not yours (any more). Is an index too large, or was "
        "the memory freed before?",
    ),
    Clue(
        rule="memory-error",
        kinds=("write-after-free",),
        hint="Memory is written after it was freed. Take what you need out of a Sequence or node before you free it.",
    ),
    Clue(
        rule="memory-error",
        kinds=("UninitCondition", "UninitValue", "SyscallParam"),
        hint="Valgrind sees at {line} a value that was never set. malloc does not clear memory: set every entry of a "
        "table and every field before you read it.",
    ),
)

LEAKS = (
    Clue(
        rule="traversal",
        kinds=("leak", "leak-whole"),
        calls=DESTROY,
        circumstances=words("holes"),
        hint="L2 tables behind a NULL slot of the L1 table are never freed. Visit all 16 slots; a NULL one is skipped.",
    ),
    Clue(
        rule="destroy",
        kinds=("leak-whole",),
        calls=DESTROY,
        circumstances=words("live-sequences"),
        hint="llm_destroy must destroy every sequence that is left: all of what was allocated at {line} is lost.",
    ),
    Clue(
        rule="destroy",
        kinds=("leak-whole",),
        calls=DESTROY,
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

LAST = (
    Clue(
        rule="memory-error",
        kinds=("unreadable",),
        hint="After {call} the structures hold pointers or numbers that lead nowhere, so the rest cannot be judged.",
    ),
    Clue(
        rule="memory-error",
        kinds=("no-time",),
        hint="The calls compute or sleep for so long that the time for all cases was used up. A call needs "
        "microseconds: which loop goes round far too often?",
    ),
    Clue(
        rule="memory-error",
        kinds=("stops-under-valgrind",),
        hint="{call} works by chance only: it reads memory that was never set or is not yours. Run Valgrind on it.",
    ),
    Clue(
        rule="memory-error",
        kinds=("strays-under-valgrind",),
        hint="{call} is another program under Valgrind, so that nobody can see whether it is right. It must not look "
        "where it runs.",
    ),
    Clue(
        rule="memory-error",
        kinds=STOPS,
        hint="{call} ends the program at {line}. Which pointer is NULL, freed or never set there?",
    ),
)
