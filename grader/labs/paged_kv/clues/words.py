"""Helpers for the clues of Homework 3: names of calls, kinds of endings, and predicates on what a call did."""

from __future__ import annotations

from reference.model import Judgement

__all__ = [
    "APPEND",
    "CREATE",
    "DESTROY",
    "FORK",
    "FREE",
    "INIT",
    "RETURNS",
    "STOPS",
    "accepted_for_nothing",
    "takes_too_many",
    "words",
    "wrongly_accepted",
    "wrongly_refused",
    "wrongly_refused_whole",
]

APPEND = ("append_kv",)
CREATE = ("create_sequence",)
FORK = ("fork_sequence",)
FREE = ("free_sequence",)
INIT = ("llm_init",)
DESTROY = ("llm_destroy",)
STOPS = ("crash", "crash-wild", "crash-recursion", "hang", "left", "left-jump", "stopped", "unreadable")

RETURNS = {
    "llm_init": "Task 1/small-pool",
    "create_sequence": "Task 2/returns-sequence",
    "free_sequence": "Task 2/free-returns",
    "fork_sequence": "Task 3/returns-child",
    "append_kv": "Task 4/count-returns",
    "llm_destroy": "Task 5/returns",
}
"""The clause on what each call returns on success; for llm_init the clause on when it returns NULL."""


def words(*them: str) -> frozenset[str]:
    """Return a set of circumstances or tags."""
    return frozenset(them)


def wrongly_accepted(judgement: Judgement) -> bool:
    """Whether a call succeeded that must fail."""
    return judgement.expected.refused and not judgement.actual.refused


def accepted_for_nothing(judgement: Judgement) -> bool:
    """Whether a call that must fail reported success but changed nothing."""
    changed = [one for one in judgement.differences if one.facet == "failing" and one.field != "the call"]
    return wrongly_accepted(judgement) and not changed


def wrongly_refused(judgement: Judgement) -> bool:
    """Whether a call reported failure that must succeed."""
    return not judgement.expected.refused and judgement.actual.refused


def wrongly_refused_whole(judgement: Judgement) -> bool:
    """Whether a call that must succeed reported failure and also left its work undone."""
    return wrongly_refused(judgement) and len(judgement.differences) > 1


def takes_too_many(judgement: Judgement) -> bool:
    """Whether fewer blocks are free than there must be."""
    counts = [one for one in judgement.differences if one.field == "free_local_blocks"]
    return any("too-low" in one.tags for one in counts)
