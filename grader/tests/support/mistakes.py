"""Single mistakes: pieces of the right program's text (programs.py) and what a student wrote instead."""

from __future__ import annotations

LAST_FIT = (
    "for (int block = 0; block < engine->total_local_blocks; block++)",
    "for (int block = engine->total_local_blocks - 1; block >= 0; block--)",
)
NO_COPY = (
    "        memcpy(getBlockAddress(engine, newBlock), getBlockAddress(engine, oldBlock), BLOCK_SIZE);\n",
    "        (void)oldBlock;\n",
)

MISTAKES: dict[str, tuple[str, str]] = {
    "return-value": (
        "    sequence->kv_count++;\n    return RESULT_OK;",
        "    sequence->kv_count++;\n    return 1;",
    ),
    "first-fit": LAST_FIT,
    "free-count": ("        engine->free_local_blocks--;", "        (void)engine;"),
    "ref-count": ("    engine->ref_count[block]++;", "    (void)engine;"),
    "address": ("[offset] = kv_data;", "[(offset + 1) % 16] = kv_data;"),
    "cow": NO_COPY,
    "block-table": ("        table[l2] = NOT_MAPPED;", "        table[l2] = 0;"),
    "leak": (
        "    deleteTables(sequence);\n    free(sequence);\n    return RESULT_OK;",
        "    deleteTables(sequence);\n    return RESULT_OK;",
    ),
    "destroy": (
        "    free(engine->ref_count);\n    free(engine);\n    return RESULT_OK;",
        "    free(engine->ref_count);\n    free(engine);\n    return 3;",
    ),
    "validation": (
        "    if (initial_kv_len <= 0 || hasSequence(engine, seq_id))",
        "    if (initial_kv_len <= 0)",
    ),
    "list": (
        "    last->next = item;\n    head->prev = item;",
        "    last->next = item;\n    head->prev = last;",
    ),
    "no-premature-write": (
        "        sequence->block_table[l1][l2] = allocateBlock(engine);\n    }\n    listAppend",
        (
            "        sequence->block_table[l1][l2] = allocateBlock(engine);\n"
            "        memset(getBlockAddress(engine, sequence->block_table[l1][l2]), 0, 64);\n    }\n    listAppend"
        ),
    ),
}
"""The mistakes, by the rule that each one breaks."""
