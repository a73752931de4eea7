"""Clues for leaks and other memory mistakes, and those tried before all others (`NULL_ENGINE`, `ISOLATION`)."""

from __future__ import annotations

from grader.assignment.lab import SEVERAL_TARGETS, Clue
from grader.labs.paged_kv.clues.words import DESTROY, FREE, words

__all__ = ["ISOLATION", "LEAKS", "MEMORY", "NULL_ENGINE"]

NULL_ENGINE = (
    Clue(
        rule="null-check",
        facets=("reply",),
        circumstances=words("null-engine"),
        clause="Constraint 1/null-engine",
        hint="{call} gets a NULL engine here and returns {actual}; it must return {expected}. Check engine == NULL on "
        "its first line, and look at what is returned there.",
    ),
    Clue(
        rule="null-check",
        circumstances=words("null-engine"),
        clause="Constraint 1/null-engine",
        hint="{call} gets a NULL engine here and must return {reply}. Check engine == NULL on its first line, before "
        "anything else, and return {reply} there.",
    ),
)

ISOLATION = (
    Clue(
        rule="isolation",
        facets=("isolation",),
        clause="Part 2.3/global-state",
        hint="{note} {field} is {actual} and must stay {expected}. All that belongs to an engine must be reached "
        "through the engine pointer of the call, never through a global or static variable.",
    ),
    Clue(
        rule="isolation",
        circumstances=words(SEVERAL_TARGETS),
        clause="Part 2.3/global-state",
        hint="With two engines, at the same time or one after the other, {call} mixes them up. Look for global or "
        "static variables that remember an engine, a pool, a sequence or an id: each engine must have its own.",
    ),
)

MEMORY = (
    Clue(
        rule="destroy",
        calls=DESTROY,
        kinds=("free-pool",),
        clause="Task 5/pool",
        hint="llm_destroy frees the pool at {line}. The pool belongs to the caller.",
    ),
    Clue(
        rule="destroy",
        calls=DESTROY,
        kinds=("free-foreign", "free-inside", "released-wrongly"),
        clause="Task 5/dummy-head",
        hint="llm_destroy frees at {line} what malloc never returned. The dummy head of the list is a part of the "
        "engine and is not freed by itself; a sequence is freed by the address of the Sequence, not of its node.",
    ),
    Clue(
        rule="memory-error",
        kinds=("double-free",),
        clause="Compilation/no-error",
        hint="The memory is freed a second time at {line}: {said}. Each table, Sequence and engine is freed exactly "
        "once.",
    ),
    Clue(
        rule="memory-error",
        kinds=("free-pool",),
        clause="Task 5/pool",
        hint="free at {line} gets the pool. It belongs to the caller of llm_init; you only store its address.",
    ),
    Clue(
        rule="memory-error",
        kinds=("free-foreign", "free-inside", "free-static", "free-stack", "released-wrongly"),
        clause="Compilation/no-error",
        hint="free at {line} gets an address that malloc, calloc or realloc did not return.",
    ),
    Clue(
        rule="memory-error",
        kinds=("underrun",),
        clause="Compilation/no-error",
        hint="{call} {said}. An index is negative there: is the -1 of an entry without a block used as the id of one?",
    ),
    Clue(
        rule="memory-error",
        kinds=("overrun", "too-small", "damaged"),
        clause={
            "llm_init": "Part 2.3/ref-count",
            "create_sequence": "Part 2.2/l1-size",
            "fork_sequence": "Part 2.2/l1-size",
            "append_kv": "Part 2.2/l2-size",
            "free_sequence": "Compilation/no-error",
            "llm_destroy": "Compilation/no-error",
        },
        hint="{call} {said}. The allocation is too small, or an index runs over its end. An L1 table is "
        "16 pointers (16 * sizeof(int *)), an L2 table 16 ints, a Sequence sizeof(Sequence), ref_count one int for "
        "each block.",
    ),
    Clue(
        rule="memory-error",
        kinds=("FreedRead", "FreedWrite"),
        clause="Compilation/no-error",
        hint="At {line} {call} {said}. Take what you need out of a table, Sequence or node first, and free it last.",
    ),
    Clue(
        rule="memory-error",
        kinds=("InvalidRead", "InvalidWrite", "InvalidJump", "InvalidFree", "MismatchedFree", "Overlap"),
        clause="Compilation/no-error",
        hint="Valgrind sees an access at {line} to memory that is not yours: {said}. Is an index too large there, or "
        "the allocation too small?",
    ),
    Clue(
        rule="memory-error",
        kinds=("write-after-free",),
        clause="Compilation/no-error",
        hint="{call} {said}. Take what you need out of a Sequence or node before you free it.",
    ),
    Clue(
        rule="memory-error",
        kinds=("UninitCondition", "UninitValue", "SyscallParam"),
        clause="Compilation/no-error",
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
        clause="Task 2/free-all-slots",
        hint="L2 tables behind a NULL slot of the L1 table are never freed. Visit all 16 slots; a NULL one is skipped.",
    ),
    Clue(
        rule="destroy",
        kinds=("leak-whole",),
        calls=DESTROY,
        circumstances=words("live-sequences"),
        clause="Task 5/all-sequences",
        hint="llm_destroy must destroy every sequence that is left: all of what was allocated at {line} is lost.",
    ),
    Clue(
        rule="destroy",
        kinds=("leak-whole",),
        calls=DESTROY,
        clause="Task 5/engine-memory",
        hint="Nothing of what was allocated at {line} is freed. llm_destroy must free the ref_count array and the "
        "engine, and every sequence that is left.",
    ),
    *(
        Clue(
            rule="leak",
            kinds=("leak", "leak-whole"),
            calls=calls,
            clause=clause,
            hint="Not all of what is allocated at {line} is freed by {call}. Each L2 table, L1 table, Sequence, "
            f"ref_count and engine needs its own free{where}.",
        )
        for calls, clause, where in (
            (
                FREE,
                "Task 2/free-memory",
                ": first all L2 tables (64 bytes), then the L1 table (128), then the Sequence",
            ),
            (DESTROY, "Task 5/all-sequences", ", and llm_destroy frees a sequence as free_sequence does"),
            ((), "Compilation/no-leak", ""),
        )
    ),
)
