"""Operations print as a case file writes them."""
# ruff: noqa: SIM300

from __future__ import annotations

import pytest

from reference.operation import NULL, Operation, Reply

CREATE = Operation(name="create_sequence", arguments=(1, 5))


@pytest.mark.parametrize(
    ("operation", "line"),
    [
        (CREATE, "create_sequence 1 5"),
        (Operation(name="llm_init", arguments=(NULL, 64)), "llm_init NULL 64"),
        (Operation(name="llm_init", arguments=("big",)), "llm_init big"),
        (Operation(name="admit", arguments=("r1", None, True, False)), "admit r1 null true false"),
        (
            Operation(name="free", arguments=((1, ("a", None)), 0.5, "no word", "null")),
            'free [1,["a",null]] 0.5 "no word" "null"',
        ),
        (Operation(name="llm_destroy", target=2), "@2 llm_destroy"),
        (Operation(name="llm_destroy", target=None), "@NULL llm_destroy"),
    ],
)
def test_an_operation_prints_as_its_line(operation: Operation, line: str) -> None:
    """Engine @1 goes without saying, NULL is written out."""
    assert line == str(operation)


def test_an_operation_claims_nothing_by_itself() -> None:
    """Line, claim and comment are the case file's to give."""
    assert (1, 0, None, False, "") == (
        CREATE.target,
        CREATE.line,
        CREATE.claim,
        CREATE.implicit,
        CREATE.comment,
    )


def test_a_reply_is_accepted_and_unexplained_by_itself() -> None:
    """Only an engine says that it refused and why."""
    reply = Reply(text="0")

    assert (False, "", frozenset()) == (reply.refused, reply.clause, reply.circumstances)
