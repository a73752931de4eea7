"""Words for the clues of Homework 3: calls, circumstances, and two questions about replies."""

from __future__ import annotations

from reference.model import Judgement

__all__ = [
    "APPEND",
    "CREATE",
    "DESTROY",
    "FORK",
    "FREE",
    "INIT",
    "STOPS",
    "words",
    "wrongly_accepted",
    "wrongly_refused",
]

APPEND = ("append_kv",)
CREATE = ("create_sequence",)
FORK = ("fork_sequence",)
FREE = ("free_sequence",)
INIT = ("llm_init",)
DESTROY = ("llm_destroy",)
STOPS = ("crash", "crash-wild", "hang", "left", "left-jump", "stopped", "unreadable")


def words(*them: str) -> frozenset[str]:
    """A set of circumstances or tags."""
    return frozenset(them)


def _refuses(text: str) -> bool:
    return text in ("NULL", "-1")


def wrongly_accepted(judgement: Judgement) -> bool:
    """Did a call work that must fail?"""
    return judgement.expected.refused and not _refuses(judgement.actual.text)


def wrongly_refused(judgement: Judgement) -> bool:
    """Did a call fail that must work?"""
    return not judgement.expected.refused and _refuses(judgement.actual.text)
