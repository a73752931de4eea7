# ruff: noqa: E501 - a replacement in C is checked more easily in one piece
"""Conforming programs made from one right program by changes that the handout allows; each must keep every point."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from grader.tests.support.programs import changed, right

_HEADER = '#include "llm_memory.h"\n'
_CALLS = ("llm_init", "create_sequence", "free_sequence", "fork_sequence", "append_kv", "llm_destroy")


def after_header(text: str, *lines: str) -> str:
    """Return the right program with lines after its last #include."""
    return changed((_HEADER, _HEADER + "\n".join([*lines, ""])), text=text)


def in_every_call(text: str, statement: str, *top: str) -> str:
    """Return the right program with a statement at the start of each of the six calls."""
    text = after_header(text, *top)
    for call in _CALLS:
        start = text.index("{", text.index(f"{call}(")) + 1
        text = text[:start] + f"\n    {statement}\n" + text[start:]
    return text


def in_helpers(text: str, statement: str, *top: str) -> str:
    """Return the right program with a statement where a sequence or a table is made: only successful calls run it."""
    return changed(
        ("    Sequence *sequence = malloc(sizeof(Sequence));\n\n", f"    Sequence *sequence = malloc(sizeof(Sequence));\n\n    {statement}\n"),
        ("    int *table = malloc(sizeof(int) * L2_PT_SIZE);\n\n", f"    int *table = malloc(sizeof(int) * L2_PT_SIZE);\n\n    {statement}\n"),
        text=after_header(text, *top),
    )  # fmt: skip


def negative_ids_refused(text: str) -> str:
    """Negative ids are invalid."""
    return changed(
        ("    if (initial_kv_len <= 0 || hasSequence(engine, seq_id))", "    if (initial_kv_len <= 0 || seq_id < 0 || hasSequence(engine, seq_id))"),
        ("hasSequence(engine, new_seq_id))\n", "hasSequence(engine, new_seq_id) || new_seq_id < 0)\n"),
        text=text,
    )  # fmt: skip


def calloc_for_everything(text: str) -> str:
    """Every allocation is zeroed."""
    return after_header(text, "#define malloc(size) calloc(1, (size))")


def malloc_for_everything(text: str) -> str:
    """The counts are zeroed by a loop."""
    return changed(
        ("    engine->ref_count = calloc((size_t)blockCount, sizeof(int));",
         "    engine->ref_count = malloc((size_t)blockCount * sizeof(int));\n    for (int i = 0; i < blockCount; i++)\n    {\n        engine->ref_count[i] = 0;\n    }"),
        text=text,
    )  # fmt: skip


def counts_zeroed_by_memset(text: str) -> str:
    """memset on a table of the program's own is no memset on the pool."""
    return changed(
        ("    engine->ref_count = calloc((size_t)blockCount, sizeof(int));",
         "    engine->ref_count = malloc((size_t)blockCount * sizeof(int));\n    memset(engine->ref_count, 0, (size_t)blockCount * sizeof(int));"),
        text=text,
    )  # fmt: skip


def more_memory_than_needed(text: str) -> str:
    """Every allocation is more than four times as large as needed."""
    return after_header(
        text,
        "#define malloc(size) malloc(4 * (size) + 7)",
        "#define calloc(count, size) calloc(4 * (count) + 7, (size))",
    )


def scratch_arrays(text: str) -> str:
    """Temporary memory is freed before the call returns."""
    return in_helpers(
        text,
        "scratch();",
        "static void scratch(void)",
        "{",
        "    int *volatile notes = malloc(1000);",
        "    notes[0] = notes[249] = 1;",
        "    free(notes);",
        "}",
    )


def realloc_in_steps(text: str) -> str:
    """A table is allocated small and grows to its size by realloc."""
    return changed(
        (
            "    int *table = malloc(sizeof(int) * L2_PT_SIZE);",
            "    int *table = realloc(realloc(NULL, 4), sizeof(int) * L2_PT_SIZE);",
        ),
        text=text,
    )


def tables_move_in_every_append(text: str) -> str:
    """A table may move to another address in a successful call."""
    return changed(
        ("    getBlockAddress(engine, sequence->block_table[l1][l2])[offset] = kv_data;",
         "    int *moved = malloc(sizeof(int) * L2_PT_SIZE);\n    memcpy(moved, sequence->block_table[l1], sizeof(int) * L2_PT_SIZE);\n    free(sequence->block_table[l1]);\n    sequence->block_table[l1] = moved;\n\n    getBlockAddress(engine, sequence->block_table[l1][l2])[offset] = kv_data;"),
        text=text,
    )  # fmt: skip


def sequence_and_l1_in_one_block(text: str) -> str:
    """One allocation holds both; one free releases them."""
    return changed(
        ("    Sequence *sequence = malloc(sizeof(Sequence));", "    Sequence *sequence = malloc(sizeof(Sequence) + L1_PT_SIZE * sizeof(int *));"),
        ("    sequence->block_table = malloc(sizeof(int *) * L1_PT_SIZE);", "    sequence->block_table = (int **)(void *)(sequence + 1);"),
        ("    free(sequence->block_table);\n", ""),
        text=text,
    )  # fmt: skip


def counts_behind_the_engine(text: str) -> str:
    """ref_count is in the same allocation as the engine."""
    return changed(
        ("    LLMEngine *engine = malloc(sizeof(LLMEngine));", "    LLMEngine *engine = malloc(sizeof(LLMEngine) + (size_t)blockCount * sizeof(int));"),
        ("    engine->ref_count = calloc((size_t)blockCount, sizeof(int));", "    engine->ref_count = memset(engine + 1, 0, (size_t)blockCount * sizeof(int));"),
        ("    free(engine->ref_count);\n", ""),
        text=text,
    )  # fmt: skip


def frees_in_another_order(text: str) -> str:
    """Tables are freed from the last to the first, and the engine before its counts."""
    return changed(
        ("    for (int l1 = 0; l1 < L1_PT_SIZE; l1++)\n    {\n        free(sequence->block_table[l1]);", "    for (int l1 = L1_PT_SIZE - 1; l1 >= 0; l1--)\n    {\n        free(sequence->block_table[l1]);"),
        ("    free(engine->ref_count);\n    free(engine);", "    int *counts = engine->ref_count;\n    free(engine);\n    free(counts);"),
        text=text,
    )  # fmt: skip


def wipes_what_it_frees(text: str) -> str:
    """Memory is overwritten before it is freed: neither freed memory nor its last contents are compared."""
    return changed(
        ("    free(sequence->block_table);\n", "    memset(sequence->block_table, 0x5A, sizeof(int *) * L1_PT_SIZE);\n    free(sequence->block_table);\n"),
        ("    free(engine->ref_count);\n", "    memset(engine->ref_count, 0xFF, sizeof(int) * (size_t)engine->total_local_blocks);\n    free(engine->ref_count);\n"),
        text=text,
    )  # fmt: skip


def destroy_gives_blocks_back_first(text: str) -> str:
    """ref_count after llm_destroy is not compared: here it is zeroed, the original leaves it unchanged."""
    return changed(
        (
            "        listRemove(&sequence->node);\n        deleteTables(sequence);",
            "        listRemove(&sequence->node);\n        visitBlocks(engine, sequence, releaseVisitor, NULL);\n        deleteTables(sequence);",
        ),
        text=text,
    )


def padding_is_garbage(text: str) -> str:
    """The padding between the fields of a Sequence contains arbitrary bytes."""
    return changed(
        (
            "    Sequence *sequence = malloc(sizeof(Sequence));",
            "    Sequence *sequence = memset(malloc(sizeof(Sequence)), 0x5A, sizeof(Sequence));",
        ),
        text=text,
    )


def checks_in_another_order(text: str) -> str:
    """The id is checked before the length, the new id before the parent, the count before the sequence."""
    return changed(
        ("    if (initial_kv_len <= 0 || hasSequence(engine, seq_id))", "    if (hasSequence(engine, seq_id) || initial_kv_len <= 0)"),
        ("    if (!hasSequence(engine, parent_seq_id) || hasSequence(engine, new_seq_id))", "    if (hasSequence(engine, new_seq_id) || !hasSequence(engine, parent_seq_id))"),
        text=text,
    )  # fmt: skip


def free_blocks_compared_with_zero(text: str) -> str:
    """The number of free blocks is checked with `<= 0` instead of `== 0`."""
    return changed(("engine->free_local_blocks == 0)", "engine->free_local_blocks <= 0)"), text=text)


def counter_recomputed_each_time(text: str) -> str:
    """free_local_blocks is set to the number of zero counts whenever a block is allocated or freed."""
    count = "static void recount(LLMEngine *engine)\n{\n    engine->free_local_blocks = 0;\n    for (int i = 0; i < engine->total_local_blocks; i++)\n        engine->free_local_blocks += engine->ref_count[i] == 0;\n}\n"
    return changed(
        ("        engine->free_local_blocks--;", "        recount(engine);"),
        ("        engine->free_local_blocks++;", "        recount(engine);"),
        text=after_header(text, count),
    )


def one_block_for_the_copy_by(text: str, copy: str) -> str:
    """Copy the 64 bytes of a block in another way."""
    return changed(
        (
            "        memcpy(getBlockAddress(engine, newBlock), getBlockAddress(engine, oldBlock), BLOCK_SIZE);",
            f"        int *to = getBlockAddress(engine, newBlock), *from = getBlockAddress(engine, oldBlock);\n        {copy}",
        ),
        text=text,
    )


def record_stored_by(text: str, store: str) -> str:
    """Store the 4 bytes of a KV record in another way."""
    return changed(
        (
            "    getBlockAddress(engine, sequence->block_table[l1][l2])[offset] = kv_data;",
            f"    int *target = getBlockAddress(engine, sequence->block_table[l1][l2]) + offset;\n    {store}",
        ),
        text=text,
    )


def null_check_written_as(text: str, check: str) -> str:
    """Write the same check in another way."""
    return text.replace("    if (engine == NULL)", f"    if ({check})")


def writes_a_log_file(text: str) -> str:
    """Each call writes to a log file, and does not check whether it could be opened."""
    statement = 'FILE *log = fopen("debug.log", "a"); fprintf(log, "call\\n"); fclose(log);'
    return in_every_call(text, statement, "#include <stdio.h>")


VARIANTS: dict[str, Callable[[str], str]] = {
    "negative ids refused": negative_ids_refused,
    "calloc for everything": calloc_for_everything,
    "malloc and a loop of zeros": malloc_for_everything,
    "malloc and memset": counts_zeroed_by_memset,
    "more memory than needed": more_memory_than_needed,
    "scratch arrays": scratch_arrays,
    "realloc in steps": realloc_in_steps,
    "tables move in every append": tables_move_in_every_append,
    "sequence and L1 table in one block": sequence_and_l1_in_one_block,
    "counts behind the engine": counts_behind_the_engine,
    "frees in another order": frees_in_another_order,
    "wipes what it frees": wipes_what_it_frees,
    "destroy gives blocks back first": destroy_gives_blocks_back_first,
    "garbage in the padding": padding_is_garbage,
    "checks in another order": checks_in_another_order,
    "free blocks <= 0": free_blocks_compared_with_zero,
    "counter recomputed": counter_recomputed_each_time,
    "copy by memmove": lambda text: one_block_for_the_copy_by(text, "memmove(to, from, 64);"),
    "copy from the end, byte by byte": lambda text: one_block_for_the_copy_by(text, "for (int i = 63; i >= 0; i--) ((char *)to)[i] = ((char *)from)[i];"),
    "copy as a struct": lambda text: one_block_for_the_copy_by(text, "struct whole { int words[16]; }; *(struct whole *)(void *)to = *(struct whole *)(void *)from;"),
    "store by memcpy": lambda text: record_stored_by(text, "memcpy(target, &kv_data, sizeof kv_data);"),
    "store byte by byte": lambda text: record_stored_by(text, "for (int i = 0; i < 4; i++) ((unsigned char *)target)[i] = (unsigned char)((unsigned)kv_data >> 8 * i);"),
    "!engine": lambda text: null_check_written_as(text, "!engine"),
    "NULL == engine": lambda text: null_check_written_as(text, "NULL == engine"),
    "printf in every call": lambda text: in_every_call(text, 'printf("called, "); fprintf(stderr, "%s\\n", __func__); fputs("partial", stderr);', "#include <stdio.h>"),
    "unbuffered output": lambda text: in_every_call(text, 'setvbuf(stdout, NULL, _IONBF, 0); printf("%d ", 7); puts("line"); fflush(NULL);', "#include <stdio.h>"),
    "asserts that hold": lambda text: in_every_call(text, "assert(L1_PT_SIZE == 16);", "#include <assert.h>"),
    "a log file, not checked": writes_a_log_file,
    "counters and time": lambda text: in_every_call(text, "calls++; last = time(NULL); if (calls % 1000 == 0) srand((unsigned)last + (unsigned)rand());", "#include <time.h>", "static unsigned long calls;", "static time_t last;"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "no final newline, tabs, UTF-8": lambda text: ("/* 二级块表 – é */\n" + text.replace("    ", "\t")).rstrip("\n"),
    "own macros for the sizes": lambda text: text.replace("BLOCK_SIZE", "sizeof(int[16])").replace("pool_size < sizeof", "pool_size < (size_t)sizeof"),
}  # fmt: skip
"""The variants, by what they change."""


_PROGRAMS = 6


@cache
def programs() -> dict[tuple[str, ...], str]:
    """Return six programs with all variants, by their names: each is in the smallest one in which it fits.

    Two do not fit together that change the same text, or define the same macro.
    """
    programs: list[tuple[tuple[str, ...], str]] = [((), right())] * _PROGRAMS
    for name, variant in VARIANTS.items():
        fitting = [(names, text, place) for place, (names, text) in enumerate(programs) if _fitting(variant, text)]
        names, text, place = min(fitting, key=lambda candidate: len(candidate[0]))
        programs[place] = ((*names, name), variant(text))
    return dict(programs)


def _fitting(variant: Callable[[str], str], text: str) -> bool:
    """Return whether the variant can be made of this text."""
    try:
        result = variant(text)
    except ValueError:
        return False
    macros = re.findall(r"^#define (\w+)", result, re.MULTILINE)
    return result != text and len(set(macros)) == len(macros)
