# ruff: noqa: E501 - a replacement in C is checked more easily in one piece
"""Reads of the pool, and copies and stores in unusual ways, of which nothing is left: no finding, no advice, no point."""

from __future__ import annotations

from functools import cache

from grader.assignment import case_files
from grader.labs.paged_kv.lab import lab
from grader.tests.support.programs import POSIX, around, graded_text
from grader.tests.support.stores import copying, storing

_WAYS = {
    "looks before it stores": ("", "if (*slot != kv_data) *slot = kv_data;"),
    "stores the whole block again": ("", "int words[16]; memcpy(words, block, 64); words[offset] = kv_data; memcpy(block, words, 64);"),
    "copies through a buffer": ("int words[16]; memcpy(words, from, 64); memcpy(to, words, 64);", ""),
    "stores before it copies": ("from[offset] ^= kv_data; memcpy(to, from, 64); from[offset] ^= kv_data;", ""),
    "copies slot by slot": ("for (int i = 0; i < 16; i++) { to[i] = from[i]; }", ""),
    "compares after the copy": ("memmove(to, from, 64); if (memcmp(to, from, 64) != 0) return RESULT_ERROR;", ""),
}  # fmt: skip
"""How a program copies a block and stores a record, where it does not do so as usual."""


@cache
def conforming() -> str:
    """A program that does all of that, one by the size of the pool; it reads the pool in every call, and prints it."""
    copies, stores = (
        " ".join(f"case {number}: {{ {way} break; }}" for number, way in enumerate(ways) if way)
        for ways in zip(*_WAYS.values(), strict=True)
    )
    reads = "volatile int sum = 0; if (engine != NULL) for (int i = 0; i < 16; i++) sum += ((int *)engine->pool_base_ptr)[i]; (void)sum;"
    prints = ' if (engine != NULL) printf("%d\\n", *(int *)engine->pool_base_ptr);'
    way = f"switch (engine->total_local_blocks % {len(_WAYS)})"
    text = storing(
        f"{way} {{ {stores} default: *slot = kv_data; }}",
        text=copying(f"{way} {{ {copies} default: memcpy(to, from, 64); }}"),
    )
    for call, before in (
        ("create_sequence", reads),
        ("fork_sequence", reads),
        ("append_kv", reads),
        ("free_sequence", reads + prints),
        ("llm_destroy", reads),
    ):
        text = around(
            call, f"    {before}", text=text, top=POSIX + "#include <string.h>\n" if call == "create_sequence" else ""
        )
    return text  # fmt: skip


def test_reading_the_pool_everywhere_keeps_every_point_of_all_cases() -> None:
    """Such reads are counted as errors by Valgrind, in many operations without a word."""
    every = case_files.load_folder(lab().cases, lab().grammar, seed=lab().rubric.seed)
    whole = graded_text(conforming(), *every, valgrind=True)

    assert (whole.score, whole.findings, whole.advice) == (whole.max_score, (), ())
