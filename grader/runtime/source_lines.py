"""Lines of the submission for an observation: for a stack of addresses, and for a wrong reply or value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grader.core.verdict import SourceLine

__all__ = ["Lines", "Named", "Place", "stack_of"]

Place = tuple[int, int]
"""Numbers of a case and of one of its operations, both from 0."""

Lines = Mapping[tuple[int, ...], tuple[SourceLine, ...]]
"""The student's lines for each stack of addresses (a runtime finds them)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What is known of the line where a wrong reply or value comes from (a runtime finds it)."""

    lines: tuple[SourceLine, ...] = ()
    said: str = ""
    """An additional sentence about the line."""
    stored: bool = False
    """Whether the wrong value is known to be stored there, and is not left over from before."""
    freed: bool = False
    """Whether it is a use of freed memory. Then everything else that is wrong follows from it."""


def stack_of(address: int) -> tuple[int, ...]:
    """Return a stack of this return address alone: its call is the instruction before. Empty for address 0."""
    return (0, address) if address else ()
