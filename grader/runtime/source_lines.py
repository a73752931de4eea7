"""Lines of the submission behind wrong replies and values, where a runtime knows them."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.verdict import SourceLine, Tool

Place = tuple[int, int]
"""Numbers of a case and of one of its operations, both from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """Lines that an instrument saw doing what a difference shows."""

    lines: tuple[SourceLine, ...]
    tool: Tool | None = None
    """The instrument whose finding this is, also where another line is the cause; None: no finding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What is known of the line where a wrong reply or value comes from, once it was searched for."""

    lines: tuple[SourceLine, ...] = ()
    said: str = ""
    """An additional sentence about the line."""
    stored: bool = False
    """Whether the wrong value is known to be stored there, and is not left over from before."""
    explains_all: bool = False
    """Whether everything else that is wrong follows from what the line does."""
