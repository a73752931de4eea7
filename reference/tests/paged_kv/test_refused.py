"""Constraints 1 and 2: calls that must fail, and that a call that fails changes nothing."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.tests.paged_kv.played import Played
from reference.tests.paged_kv.refused import REFUSED, SETTING


@pytest.mark.handout("Constraint 2/contract")
@pytest.mark.parametrize(("line", "clause"), REFUSED.items())
def test_a_refused_call_leaves_the_state_as_it_was(line: str, clause: str) -> None:
    """No table, counter, list or pool word differs."""
    played = Played(4)
    played.do(*SETTING)
    before = played.state()
    reply = played.do(line)

    assert (True, clause) == (reply.refused, reply.clause)
    assert before == played.state()


@pytest.mark.handout("Constraint 1/null-engine")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("create_sequence 9 1", "NULL"),
        ("fork_sequence 1 9", "NULL"),
        ("free_sequence 1", "-1"),
        ("append_kv 1 5", "-1"),
        ("llm_destroy", "-1"),
    ],
)
def test_a_null_engine_is_answered_by_the_type_of_the_call(line: str, text: str) -> None:
    """Calls that return a pointer return NULL, the others -1."""
    played = Played(4)
    played.do(*SETTING)
    reply = played.do(f"@NULL {line}")

    assert (text, True) == (reply.text, reply.refused)


@pytest.mark.handout("Constraint 2/phase-order")
@pytest.mark.parametrize(
    ("line", "clause"),
    [
        ("fork_sequence 9 1", "Task 3/parent"),
        ("append_kv 9 5", "Task 4/unknown"),
        ("@NULL append_kv 9 5", "Constraint 1/null-engine"),
        ("llm_init NULL 0", "Task 1/null-pool"),
    ],
)
def test_basic_checks_come_before_ids_and_ids_before_blocks(line: str, clause: str) -> None:
    """Of several reasons, the one of the earlier phase is named."""
    played = Played(4)
    played.do(*SETTING)

    assert clause == played.do(line).clause


@pytest.mark.handout("Constraint 2/phase-order", "Task 4/full")
def test_a_full_sequence_is_told_before_a_full_pool() -> None:
    """append_kv looks at the logical index before it looks for blocks."""
    played = Played(1)

    assert "Task 4/full" == played.do("create_sequence 1 1", "set_kv_count 1 4096", "append_kv 1 5").clause
