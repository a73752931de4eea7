"""The conditions of the known mistakes of Homework 3 that need code, by the names that `mistakes.toml` uses."""

from __future__ import annotations

from collections.abc import Mapping

from grader.assignment.lab import Predicate
from grader.core.difference import Judgement


def _wrongly_accepted(judgement: Judgement) -> bool:
    """Whether a call succeeded that must fail."""
    return judgement.expected.refused and not judgement.actual.refused


def _wrongly_accepted_without_effect(judgement: Judgement) -> bool:
    """Whether a call that must fail reported success but changed nothing."""
    changes = [
        difference
        for difference in judgement.differences
        if difference.facet == "failing" and difference.field != "the call"
    ]
    return _wrongly_accepted(judgement) and not changes


def _wrongly_refused(judgement: Judgement) -> bool:
    """Whether a call reported failure that must succeed."""
    return not judgement.expected.refused and judgement.actual.refused


def _wrongly_refused_without_effect(judgement: Judgement) -> bool:
    """Whether a call that must succeed reported failure and also left its work undone."""
    return _wrongly_refused(judgement) and len(judgement.differences) > 1


def _takes_too_many(judgement: Judgement) -> bool:
    """Whether fewer blocks are free than there must be."""
    return any(
        difference.field == "free_local_blocks" and "too-low" in difference.tags for difference in judgement.differences
    )


def _no_copy_needed(judgement: Judgement) -> bool:
    """Whether the call is no append that must copy a shared block."""
    return "copy-on-write" not in judgement.expected.circumstances


PREDICATES: Mapping[str, Predicate] = {
    "wrongly-accepted": _wrongly_accepted,
    "wrongly-accepted-without-effect": _wrongly_accepted_without_effect,
    "wrongly-refused": _wrongly_refused,
    "wrongly-refused-without-effect": _wrongly_refused_without_effect,
    "takes-too-many-blocks": _takes_too_many,
    "no-copy-needed": _no_copy_needed,
}
"""Each says something about a judged call."""
