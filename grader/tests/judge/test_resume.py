"""Calls judged alone: a call that stops a case about another one costs its own cases, not those of all calls."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from grader.assignment import case_files
from grader.core.case import Case, Expected
from grader.core.model import play
from grader.core.record import Record
from grader.labs.paged_kv.judging.model import PagedKVModel
from grader.labs.paged_kv.lab import lab
from grader.tests.support.programs import around, comparisons, graded_text, made, right, unwritten
from reference.operation import Trace


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


@cache
def every_case() -> tuple[Case, ...]:
    """All of the lab."""
    return tuple(case_files.load_folder(lab().cases, lab().grammar, seed=lab().rubric.seed))


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


def test_what_follows_must_be_right_itself() -> None:
    """In every part, in all that it does, whatever the rule of the case."""
    refusing = around("fork_sequence", BROKEN["refuses"])
    late = "    if (result == 0 && kv_data == 13) engine->free_local_blocks++;"

    assert not passed(graded_text(around("append_kv", after=late, text=refusing), _APPEND))["append/cow"]
    assert not passed(graded_text(unwritten("append_kv", refusal="-1", text=refusing), _APPEND))["append/cow"]


def test_a_case_that_goes_on_is_not_judged_anew() -> None:
    """A state that is only wrong is the state from which the next call is judged."""
    wrong = around("create_sequence", after="    if (result != NULL) engine->free_local_blocks--;")
    case = case_of("append", "create_sequence 1 20 -> seq; append_kv 1 1 -> 0", "free-count")

    assert not passed(graded_text(wrong, case))[case.name]


@pytest.mark.parametrize("name", ["append/copies_in_turn", "free/every_place", "engines/different_pool_sizes"])
def test_the_pokes_build_the_state_of_the_reference(name: str) -> None:
    """After each operation of a case, in the reference and in the harness, byte by byte but for the reply."""
    (case,) = (case for case in every_case() if case.name == name)
    model = PagedKVModel(case.trace)
    for number, operation in enumerate(case.trace.operations):
        model.apply(operation)
        built_by = lab().built
        assert built_by is not None
        pokes = tuple(built_by(model))
        if not pokes or {poke.target for poke in pokes} != {each.target for each in case.trace.operations}:
            continue
        trace = Trace(operations=pokes, settings=case.trace.settings)
        built = PagedKVModel(trace)
        expected = Expected.of(play(built, trace))

        assert built.oracle.state() == model.oracle.state(), number
        (comparison,) = comparisons(right(), replace(case, trace=trace, expected=expected))
        assert comparison.deviations == (), number
        assert comparison.follows == len(pokes), number
