"""Valgrind knows what was never freed, whatever a program does to the harness's tables in its own memory."""

from __future__ import annotations

from grader.core.verdict import Verdict
from grader.runtime.native.native_played import native_played
from grader.tests.support.programs import (
    POSIX,
    around,
    attempted,
    findings,
    first_case,
    line_of,
    second_case,
    seconds_here,
)

_TOP = POSIX + "#include <stdlib.h>\n"
_HIDES = """
#include <stdint.h>
#include <string.h>
struct block { uintptr_t start; size_t size; void *by[2]; int32_t in[3]; uint8_t freed; };
struct heap { uint32_t allocations, frees, bad_frees, broken, live; int32_t last[2]; size_t live_bytes, own[3]; };
extern char __bss_start[], _end[];
static void *parked;
static void hide(void)
{
    uintptr_t wanted = (uintptr_t)parked ^ (uintptr_t)0x5a5a5a5a5a5a5a5a;
    for (uintptr_t at = ((uintptr_t)__bss_start + 7) & ~(uintptr_t)7; at < (uintptr_t)_end; at += 8) {
        struct block *block = (void *)at;
        struct heap *heap = (void *)(at - sizeof *heap);
        if (block->start != wanted || block->size != 40)
            continue;
        block->freed = 1;
        heap->live--;
        heap->live_bytes -= 40;
        memset(parked, 0xDD, 40);
        return;
    }
    __builtin_trap();
}
"""


def test_a_leak_is_not_hidden_by_stores_into_our_table() -> None:
    """An allocation is called freed in the harness's table: Valgrind names its line."""
    inner = around("llm_init", "    parked = malloc(40); /* HERE */", top=_TOP + _HIDES)
    source = around("llm_destroy", after="    if (parked != NULL) hide();", top="", text=inner)
    untold, valgrinds = findings(attempted(source, first_case(), valgrind=True))

    assert (untold.verdict, valgrinds.verdict) == (Verdict.MEMORY_LEAK, Verdict.MEMORY_LEAK)
    assert "there is no record of which ones" in untold.message
    assert valgrinds.source[0].line == line_of(source)


def test_what_is_not_freed_among_very_many_allocations_is_told_with_its_line() -> None:
    """Of 60,000."""
    loop = "for (int i = 0; i < 60000; i++) { char *volatile p = malloc(1); if (i % 20000) free(p); } /* HERE */"
    source = around("llm_init", f"    if (pool_size == 4 * BLOCK_SIZE) {{ {loop} }}", top=_TOP)
    attempt = attempted(source, first_case(), second_case())
    (finding,) = {(one.verdict, one.kind, one.source[0].line) for one in findings(attempt)}

    assert finding == (Verdict.MEMORY_LEAK, "leak", line_of(source))
    assert [native_played(one).live for one in attempt.comparisons] == [3, 3]
    assert attempt.spent["play"] < seconds_here(2)


def test_a_case_that_is_cut_off_is_said_to_lose_nothing() -> None:
    """It could not free what it had."""
    attempt = attempted(around("append_kv", "    abort();"), first_case())

    assert {one.verdict for one in findings(attempt)} == {Verdict.RUN_TIME_ERROR}
