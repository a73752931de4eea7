"""Anything that was seen of a program besides differences of its state: an error, a loss, a bad end."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.verdict import SourceLine, Tool, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that a runtime or its instruments saw at an operation (counted from 0), in their words."""

    operation: int
    verdict: Verdict
    kind: str
    """The word for it in findings, such as "crash"."""
    message: str
    lines: tuple[SourceLine, ...] = ()
    """The submission's lines, innermost call first."""
    tool: Tool = Tool.REPLAY
    by: str = ""
    """Who says so, as reports write it before the message; empty: the grader itself."""
    detail: str = ""
    """A finer word for it, by which known mistakes recognise it; empty: the kind."""
    explains_state: bool = False
    """Whether it probably caused a wrong state of the same call."""
    at_origin: bool = False
    """Whether its lines made what was misused, because the lines that misused it are not known."""
    facet: str = ""
    """The facet that is wrong at the end of the case because of it, where rules count that; "" for no facet."""
    made_by: frozenset[str] = frozenset()
    """The calls that made what is wrong in that facet; empty: not known."""

    @property
    def sentence(self) -> str:
        """The message, and who says so."""
        return f"{self.by}: {self.message}" if self.by else self.message
