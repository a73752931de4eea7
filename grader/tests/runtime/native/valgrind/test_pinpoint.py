"""Of the cases whose first difference has no line yet, a few are run once more: which ones."""

from __future__ import annotations

from dataclasses import replace

from grader.runtime.native.valgrind.memcheck import cases_without_line
from grader.tests.support.programs import attempted, changed, made, memcheck_of, natively

_COPY = "memcpy(getBlockAddress(engine, newBlock), getBlockAddress(engine, oldBlock), BLOCK_SIZE"
_STORY = "create_sequence 1 21 -> seq; fork_sequence 1 2 -> seq; append_kv 2 12 -> 0"


def test_public_cases_come_first_the_short_ones_before_the_long_ones() -> None:
    """What students read is of public cases, and a short case costs least."""
    cases = (
        made("hidden", _STORY, header='pool_blocks = 4; visibility = "hidden"'),
        made("long", f"{_STORY}; free_sequence 1 -> 0; free_sequence 2 -> 0"),
        made("short", _STORY),
    )
    attempt = attempted(changed((_COPY, f"{_COPY} - 4")), *cases, valgrind=True)
    checked = replace(memcheck_of(attempt), stores={})
    allowed = natively(attempt).allowed

    assert attempt.diagnosed is not None
    assert attempt.diagnosed.order == (2, 1, 0)
    for order in ((2, 1, 0), (0, 2)):
        assert cases_without_line(attempt.comparisons, checked, allowed, order) == [*order]
