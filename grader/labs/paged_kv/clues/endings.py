"""Clues for calls that crash, hang or end the program."""

from __future__ import annotations

from grader.assignment.lab import Clue
from grader.labs.paged_kv.clues.words import APPEND, CREATE, FORK, RETURNS, STOPS, words

__all__ = ["ENDINGS", "LAST"]

_FREES = {"free_sequence": "Task 2/free-all-slots", "llm_destroy": "Task 2/free-all-slots"}

ENDINGS = (
    Clue(
        rule="check-before-allocate",
        calls=APPEND,
        kinds=STOPS,
        circumstances=words("none-free"),
        hint="append_kv needs a new block here and none is free. Compare free_local_blocks with 0 and return -1 before "
        "you look for a block.",
    ),
    Clue(
        rule="check-before-allocate",
        calls=CREATE,
        kinds=STOPS,
        circumstances=words("none-free"),
        hint="More blocks are needed than are free. create_sequence must find that out first and return NULL.",
    ),
    Clue(
        rule="validation",
        kinds=STOPS,
        circumstances=words("sequence-full"),
        hint="The sequence is full: logical block 256 does not exist. append_kv must return -1 when the logical index "
        "is 256 or more (>=), before it looks into the tables.",
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
            hint=f"{{call}} must return {{reply}} here: {why}",
        )
        for word, why in (
            (
                "unknown-id",
                (
                    "no sequence has this id. Does the search end when nobody has it, and is its result compared with "
                    "what it returns then, before it is used?"
                ),
            ),
            ("id-taken", "a sequence has this id already. Is the search for the id right?"),
            ("bad-length", "initial_kv_len is 0 or negative. Check it first."),
            ("small-pool", "pool_size is below 64. Check it first."),
            ("null-pool", "pool_addr is NULL. Check it first."),
        )
    ),
    Clue(
        rule="block-table",
        calls=CREATE,
        kinds=("crash-wild",),
        clause="Task 2/l1-null",
        hint="create_sequence follows a pointer at {line} that was never set. malloc does not clear memory: all 16 "
        "slots of a new L1 table must be set to NULL first.",
    ),
    Clue(
        rule="traversal",
        kinds=STOPS,
        circumstances=words("holes"),
        clause={"fork_sequence": "Task 3/copy-tables", "append_kv": "Task 4/l2-missing", **_FREES},
        hint="The L1 table has NULL slots between used ones here. {call} must look at all 16 slots and skip those that "
        "are NULL.",
    ),
    Clue(
        rule="traversal",
        calls=FORK,
        kinds=("hang",),
        clause="Task 3/copy-tables",
        hint="fork_sequence does not come back; it loops at {line}. Does the loop over the 16 L1 slots go on when a "
        "slot is NULL?",
    ),
    Clue(
        rule="list",
        kinds=("hang",),
        clause="Part 2.5/intrusive-list",
        hint="{call} does not come back; it loops at {line}. The list is a ring: a walk ends when it is back at "
        "&engine->active_seqs, and the node that you free must not be used to go on.",
    ),
    Clue(
        rule="memory-error",
        kinds=("left-jump",),
        clause="Compilation/no-error",
        hint="longjmp at {line} goes back into a call that has already returned. A jump must stay inside one call: "
        "setjmp first, then longjmp, both before the call returns.",
    ),
    Clue(
        rule="memory-error",
        kinds=("left",),
        clause=RETURNS,
        hint="{call} ends the whole program at {line}. When it cannot do its work it must return {refusal}.",
    ),
)

LAST = (
    Clue(
        rule="memory-error",
        kinds=("unreadable",),
        clause="Part 2.5/intrusive-list",
        hint="{said}.",
    ),
    Clue(
        rule="memory-error",
        kinds=("no-time",),
        clause="Compilation/no-error",
        hint="The calls compute or sleep for so long that the time for all cases was used up. A call needs "
        "microseconds: which loop goes round far too often?",
    ),
    Clue(
        rule="memory-error",
        kinds=("stops-when-checked",),
        clause="Compilation/no-error",
        hint="{call} works by chance only: it reads memory that was never set or is not yours. Run Valgrind on it.",
    ),
    Clue(
        rule="memory-error",
        kinds=("unseen-when-checked",),
        clause="Compilation/no-error",
        hint="Run Valgrind on your program: it must reach its end there. Make your static variables smaller.",
    ),
    Clue(
        rule="memory-error",
        kinds=("strays-when-checked",),
        clause="Compilation/no-error",
        hint="{call} is another program under Valgrind, so that nobody can see whether it is right. It must not look "
        "where it runs.",
    ),
    Clue(
        rule="memory-error",
        calls=APPEND,
        kinds=("crash",),
        circumstances=words("l2-missing"),
        clause="Task 4/l2-missing",
        hint="{said}, at {line}. The L1 slot of this record is NULL: append_kv must allocate the L2 table, with -1 in "
        "all entries, before it looks into it.",
    ),
    Clue(
        rule="memory-error",
        kinds=("crash-wild",),
        clause="Compilation/no-error",
        hint="{said}, at {line}. What is read there was freed before, or malloc gave it and nobody set it.",
    ),
    Clue(
        rule="memory-error",
        kinds=("crash-recursion",),
        clause="Part 2.5/intrusive-list",
        hint="{call} calls itself at {line} again and again until the stack is full. What ends the recursion? A walk "
        "along the list ends when it is back at &engine->active_seqs; no link of the ring is NULL.",
    ),
    Clue(
        rule="memory-error",
        kinds=("crash",),
        clause="Compilation/no-error",
        hint="{said}, at {line}. One of the pointers or indices of that line is NULL, freed or out of range there; in "
        "a loop an earlier turn may have made it so. Print them just before it, or look at them in gdb.",
    ),
    Clue(
        rule="memory-error",
        kinds=STOPS,
        clause="Compilation/no-error",
        hint="{said}, at {line}. Which pointer or index is wrong there?",
    ),
)
