"""Clauses: replies name sentences that exist, and every sentence the engine can break has its test."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from reference.tests.paged_kv.clauses import clauses
from reference.tests.paged_kv.played import Played

HERE = Path(__file__).parent

NOT_IN_PYTHON = {
    "Part 2.5/offsetof",
    "Task 2/free-memory",
    "Task 5/dummy-head",
    "Task 5/engine-memory",
}
"""What a program with a garbage collector cannot break."""

EVERY_REPLY = """
    @NULL create_sequence 1 1
    llm_init NULL 64
    @2 llm_init 1
    llm_init 18432
    create_sequence 1 0
    create_sequence 1 4097
    create_sequence 1 4096
    create_sequence 1 1
    create_sequence 2 513
    append_kv 1 5
    append_kv 9 5
    fork_sequence 9 2
    fork_sequence 1 1
    fork_sequence 1 2
    set_kv_count 2 0
    append_kv 2 5
    create_sequence 3 496
    append_kv 2 6
    fork_sequence 2 4
    append_kv 4 6
    free_sequence 9
    free_sequence 4
    llm_destroy
"""


def clauses_with_a_test() -> frozenset[str]:
    """What the tests of this folder say they are about."""
    names: set[str] = set()
    for file in HERE.glob("test_*.py"):
        module = importlib.import_module(f"{__package__}.{file.stem}")
        for test in vars(module).values():
            marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
            names |= {clause for mark in marks if mark.name == "handout" for clause in mark.args}
    return frozenset(names)


def test_every_clause_that_a_reply_names_is_in_the_handout() -> None:
    """A trace that meets every answer of every call: each of their clauses exists."""
    played = Played(None)
    replies = [played.do(line.strip()) for line in EVERY_REPLY.strip().splitlines()]
    named = {reply.clause for reply in replies} - {""}

    assert named <= clauses()
    assert {
        "Constraint 1/null-engine",
        "Task 1/null-pool",
        "Task 1/small-pool",
        "Task 1/total-blocks",
        "Task 2/length",
        "Task 2/unique-id",
        "Task 2/too-long",
        "Task 2/no-room",
        "Task 2/returns-sequence",
        "Task 2/free-unknown",
        "Task 2/free-returns",
        "Task 3/parent",
        "Task 3/unique-id",
        "Task 3/returns-child",
        "Task 4/unknown",
        "Task 4/full",
        "Task 4/oom",
        "Task 4/count-returns",
        "Task 5/returns",
    } == named


def test_tests_name_clauses_that_exist() -> None:
    """A misspelt clause would look like a tested one."""
    assert frozenset() == clauses_with_a_test() - clauses()


def test_every_clause_that_the_engine_can_break_has_a_test() -> None:
    """All sentences but those about C memory and compilation."""
    breakable = {clause for clause in clauses() - NOT_IN_PYTHON if not clause.startswith("Compilation/")}

    assert frozenset() == breakable - clauses_with_a_test()


def test_clauses_left_out_exist() -> None:
    """The list of exceptions has no leftovers, and no clause is both excepted and tested."""
    assert set() == NOT_IN_PYTHON - clauses()
    assert set() == NOT_IN_PYTHON & clauses_with_a_test()
