"""Memcheck's kinds of errors, and what each means for the judge."""

from __future__ import annotations

TOOL = "Valgrind"

LEAK = "Leak"
"""Prefix of the kinds for lost memory."""

UNSET = "Uninit"
"""Prefix of the kinds for values that were never set."""

STORE = "InvalidWrite"
"""The kind of a store to memory that must not be written."""

_OF_FREED = {"FreedRead": "reads memory that was freed", "FreedWrite": "writes to memory that was freed"}
_EXPLAIN_STATE = frozenset(
    {"InvalidRead", "InvalidWrite", "InvalidFree", "FreedRead", "FreedWrite", "UninitCondition", "UninitValue"}
)


def in_clues(kind: str, *, freed: bool) -> str:
    """Return the word for clues; Memcheck has one kind for freed memory and for memory that was never allocated."""
    if kind.startswith(LEAK):
        return "leak"
    return kind.replace("Invalid", "Freed") if freed else kind


def in_words(kind: str, message: str, *, freed: bool) -> str:
    """Return the error in Memcheck's words, or in plainer words."""
    if kind.startswith(LEAK):
        return "memory that was allocated here is never freed"
    return _OF_FREED.get(in_clues(kind, freed=freed), message)


def origin(kind: str, *, freed: bool) -> str:
    """Return what happened at an error's second stack, as a sentence that a place ends."""
    if freed:
        return "it was freed"
    return "the value comes from memory allocated" if kind.startswith(UNSET) else "the memory was allocated"


def explains_state(kind: str, *, freed: bool) -> bool:
    """Return whether an error of this kind probably caused a wrong state of the same call."""
    return in_clues(kind, freed=freed) in _EXPLAIN_STATE
