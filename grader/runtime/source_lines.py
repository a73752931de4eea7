"""Lines of the submission behind what was observed: of a stack of addresses, and of a wrong reply or value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grader.core.verdict import SourceLine

__all__ = ["Lines", "Named", "Place", "stack_of"]

Place = tuple[int, int]
"""Numbers of a case and of one of its operations, both from 0."""

Lines = Mapping[tuple[int, ...], tuple[SourceLine, ...]]
"""The student's lines on each stack of addresses (a runtime finds them)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What is known of the line where a wrong reply or value comes from (a runtime finds it)."""

    lines: tuple[SourceLine, ...] = ()
    said: str = ""
    """A sentence more on it."""
    stored: bool = False
    """Is the wrong value stored there, and not what stood there before left?"""
    freed: bool = False
    """Is it a use of memory that was freed? Then whatever else is wrong comes of it."""


def stack_of(address: int) -> tuple[int, ...]:
    """A return address as a stack of its own: its call is the instruction before."""
    return (0, address) if address else ()
