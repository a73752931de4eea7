"""What is wrong with an operation of a program: differences of its state or reply, and symptoms, anything else."""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.verdict import SourceLine, Tool, Verdict
from reference.operation import Reply

SHARED_MEMORY = "shared-memory"
"""Tag of a difference in the memory that `Model.allowed` speaks of: somebody stored into it, or did not."""

COPIED_MEMORY = "copied-memory"
"""Tag of such a difference where the operation should have put what it read elsewhere in that memory."""

UNFILLED = "fill"
"""Tag of a difference in what an allocation holds where nothing was to be put."""

NEVER_SET = "never-set"
"""Tag of a difference where the program's memory still holds what it held when it was allocated."""


SENTENCE = "sentence"
"""Tag of a difference that says itself what is wrong, so that "must be ..., not ..." tells nothing."""


UNREAD = "unread"
"""Tag of a difference where nothing could be read of the program, such as an attribute that it does not have."""


STILL_EMPTY = "none-stored"
"""Tag of a difference where something belongs and only the mark for nothing stands, such as NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place where a program's record is not what it should be.

    `facet` names the part of the record, `field` the place in it in the handout's words. `tags` refine it for the
    diagnosis.
    """

    facet: str
    field: str
    expected: str
    actual: str
    tags: frozenset[str] = frozenset()
    note: str = ""
    """A sentence more, such as what changed although another thing was asked for."""
    entry: str = ""
    """The entry of a facet of many, such as the number of a block."""
    place: str = ""
    """The place in the record that holds the wrong value, where `field` does not name it."""
    sentence: str = ""
    """What is wrong, in a sentence of its own, where "field is actual, expected" is not the way to say it."""

    @property
    def seen(self) -> str:
        """What is wrong, in one sentence."""
        return self.sentence or f"{self.field} is {self.actual}, expected {self.expected}"

    @property
    def in_words(self) -> str:
        """The field as a part of a sentence: "count of ring 1" for "ring 1: count"."""
        return " of ".join(reversed(self.field.split(": ")))

    @property
    def wanted(self) -> str:
        """What must be there instead, in one sentence."""
        if self.tags & {NEVER_SET, SENTENCE}:
            return self.seen
        joint = "and is" if self.actual.startswith("not ") else "not"
        return f"{self.field} must be {self.expected}, {joint} {self.actual}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One operation of a program, judged from the state the program itself was in before it."""

    expected: Reply
    actual: Reply
    differences: tuple[Difference, ...]
    unchanged: bool = False
    """Whether the program left the state that it was in."""
    broken: tuple[str, ...] = ()
    """A sentence for each thing that can never be so, and is so since this operation."""
    due: frozenset[str] = frozenset()
    """The facets in which the operation had something to do (grader.judge.work)."""
    worked: bool = False
    """Whether it did anything, right or wrong."""


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
