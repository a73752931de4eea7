"""Programs that are another one under Valgrind, to hide there what is wrong with them."""

from __future__ import annotations

import pytest

from grader.core.verdict import Verdict
from grader.runtime.native.native_played import NativeStep
from grader.runtime.native.valgrind.memcheck import diverged, enough
from grader.runtime.native.valgrind.reports import RunProgress
from grader.tests.support.programs import around, first_case, graded_text, made, second_case

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


def test_an_error_that_explains_it_is_told_and_nothing_besides() -> None:
    """Unset memory has other contents there; how a program goes on from it is no finding of its own."""
    text = "    int *p = unset(); void *q = p[3] == 0 ? malloc(8) : NULL; free(q); free(p);"
    record = graded_text(around("append_kv", after=text, top=_TOP), first_case(), valgrind=True)

    assert {finding.kind for finding in record.findings} == {"UninitCondition"}


def test_cases_that_valgrind_does_not_come_to_are_not_earned() -> None:
    """Whoever ends three of its processes has no points of `memory-error` for the other cases."""
    story = "create_sequence 1 5 -> seq; fork_sequence 1 2 -> seq; append_kv 2 13 -> 0"
    cases = [made(f"number{number}", story) for number in range(8)]
    sly = around("append_kv", f"    if ({_UNDER_VALGRIND}) __builtin_trap();", top=_TOP.partition("__attribute")[0])
    record = graded_text(sly, *cases, valgrind=True)
    (rule,) = (rule for rule in record.rules if rule.rule == "memory-error")

    assert (rule.points, rule.passed) == (0, 0)
    assert record.verdict is Verdict.RUN_TIME_ERROR


@pytest.mark.parametrize(
    ("did", "ended", "found"),
    [
        ([(1, 0, 1), (2, 1, 2)], True, {}),
        ([(1, 0, 1)], False, {}),
        ([(1, 0, 1)], True, {7: 1}),
        ([(1, 0, 1), (2, 0, 3)], True, {7: 1}),
        ([(0, 0, 0), (2, 1, 2)], True, {7: 0}),
        ([(1, 0, 1), (2, 1, 2), (0, 0, 2)], True, {7: 2}),
    ],
)
def test_the_first_operation_that_differs(
    did: list[tuple[int, int, int]], found: dict[int, int], *, ended: bool
) -> None:
    """A case that was cut off says nothing of what it did not come to."""
    steps = {
        7: [
            NativeStep(record=b"", allocations=1, frees=0, live=1),
            NativeStep(record=b"", allocations=2, frees=1, live=2),
        ]
    }

    course = RunProgress(planned={7: 2}, token=0, did={7: did}, ended={7} if ended else set())
    assert diverged([course], steps, set()) == found
    assert diverged([course], steps, {(7, 0)}) == {}


def test_enough_is_far_more_than_valgrind_needs() -> None:
    """Fifty times as long as natively, and its start; what the harness itself needs is not multiplied."""
    assert enough([0.01] * 100) >= 2 + 50 * 0.01 * 100
    assert enough([0.0004] * 300) < 3
