"""Calls judged alone: a call that stops a case about another one costs its own cases, not those of all calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grader.assignment.case_files import select_cases
from grader.classroom.calibration import knocked_out
from grader.core.case import Case
from grader.core.record import Record
from grader.labs import open_lab
from grader.pipeline import grade
from grader.tests.support.programs import around, graded_text, made


def case_of(folder: str, operations: str, rule: str) -> Case:
    """A case in this folder: it is about the call that is named like it."""
    return replace(made(rule, operations, header="pool_blocks = 6", rule=rule), name=f"{folder}/{rule}")


_APPEND = case_of(
    "append",
    """
    create_sequence 1 20 -> seq
    fork_sequence 1 2    -> seq
    append_kv 2 12       -> 0
    append_kv 1 13       -> 0
    """,
    "cow",
)
_FORK = case_of(
    "fork",
    """
    create_sequence 1 20 -> seq
    fork_sequence 1 2    -> seq
    append_kv 2 12       -> 0
    """,
    "block-table",
)

BROKEN = {
    "crashes": "    *(volatile int *)0 = 1;",
    "refuses": "    if (engine != NULL) return NULL;",
    "never returns": "    while (engine != NULL) *(volatile int *)&engine->free_local_blocks;",
}


def passed(record: Record) -> dict[str, bool]:
    """Whether each case passes."""
    return {outcome.case: outcome.passed for outcome in record.outcomes}


@pytest.mark.parametrize("how", BROKEN.values(), ids=BROKEN)
def test_what_follows_a_call_that_stops_is_judged_alone(how: str) -> None:
    """A case about append passes where fork is broken, one about fork does not; the case still names its cause."""
    record = graded_text(around("fork_sequence", how), _APPEND, _FORK)

    assert passed(record) == {"append/cow": True, "fork/block-table": False}
    assert record.first_cause is not None
    assert record.first_cause.call == "fork_sequence"
    assert set(record.first_cause.cases) == {"append/cow", "fork/block-table"}


def _passing(call: str, *names: str) -> dict[str, bool]:
    """Which of these cases of the block pool a right program passes in which this call does nothing."""
    lab = open_lab("block_pool")
    cases = [case for case in select_cases(lab, seed=lab.rubric.seed).cases if case.name in names]
    program = next(program for program in knocked_out(lab) if program.call == call)
    return passed(grade(Path(lab.source_name), lab, cases, source=program.source))


def test_a_right_helper_stands_in_for_a_broken_one() -> None:
    """A pool is judged with a right queue where its own raises, the queue is not."""
    cases = "free_order/argument_order", "touch/of_hits", "queue/first_in_first_out"

    assert _passing("FreeKVCacheBlockQueue.popleft", *cases) == {cases[0]: True, cases[1]: True, cases[2]: False}


def test_nothing_is_mended_in_a_case_that_is_about_the_call() -> None:
    """The reference's state behind a call that does nothing does not earn the points of that call."""
    assert _passing("KVCacheManager.allocate_slots", "allocation/rounds_up") == {"allocation/rounds_up": False}
