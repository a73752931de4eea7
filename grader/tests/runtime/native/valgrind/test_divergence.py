"""Programs that are another one under Valgrind, to hide there what is wrong with them."""

from __future__ import annotations

from grader.core.verdict import Verdict
from grader.tests.support.programs import around, first_case, graded_text, second_case

_TOP = """#include <stdint.h>
#include <stdlib.h>
__attribute__((noipa)) static int *unset(void) { return malloc(64); }
"""
_WRONG = "    int *p = unset(); if (p[3] == 7) abort(); free(p);"
_UNDER_VALGRIND = "((uintptr_t)__builtin_frame_address(0) < (uintptr_t)1 << 40)"


def test_who_does_nothing_under_valgrind_earns_nothing_by_it() -> None:
    """What is wrong natively is seen by Valgrind alone; where it looks no call does anything."""
    honest = graded_text(around("append_kv", _WRONG, top=_TOP), first_case(), second_case(), valgrind=True)
    sly = around("append_kv", f"    if ({_UNDER_VALGRIND}) return -1;\n{_WRONG}", top=_TOP)
    dodging = graded_text(sly, first_case(), second_case(), valgrind=True)

    assert honest.verdict is dodging.verdict is Verdict.MEMORY_ERROR
    assert dodging.score is not None
    assert honest.score is not None
    assert dodging.score <= honest.score < honest.max_score
    assert {finding.kind for finding in dodging.findings} == {"strays-when-checked"}
