"""What is wrong with an operation: differences of its reply or state, and symptoms (all other observations).

Both are evidence against a program. The judge adds to a difference its operation, and its lines if they are known.
"""

from __future__ import annotations

from dataclasses import dataclass

from grader.core.verdict import SourceLine, Tool, Verdict
from reference.operation import Reply

SHARED_MEMORY = "shared-memory"
"""Tag of a difference in lent memory (see `Model.allowed`): a store into it is wrong or missing."""

COPIED_MEMORY = "copied-memory"
"""Tag of a difference in lent memory where the operation should have copied data from another place in it."""

UNFILLED = "fill"
"""Tag of a difference in an entry of an allocation that should have its fill value, such as "no block"."""

NEVER_SET = "never-set"
"""Tag of a difference where the memory was not written since it was allocated."""


SENTENCE = "sentence"
"""Tag of a difference whose own sentence says what is wrong; "must be ..., not ..." would not help."""


UNREAD = "unread"
"""Tag of a difference where the program's value could not be read, such as a missing attribute."""


STILL_EMPTY = "none-stored"
"""Tag of a difference where the program has the mark for "nothing", such as NULL, instead of a value."""


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
    """An additional sentence, such as which thing changed instead of the requested one."""
    entry: str = ""
    """The entry of a facet with entries, such as the number of a block."""
    place: str = ""
    """The place in the record that holds the wrong value, if `field` does not name that place."""
    sentence: str = ""
    """What is wrong, if "FIELD is ACTUAL, expected EXPECTED" does not say it well."""
    operation: int = -1
    """The operation (counted from 0) after which the difference was found; -1 until the judge adds the number."""
    lines: tuple[SourceLine, ...] = ()
    """The submission's lines that caused the difference, innermost call first; empty while they are unknown."""
    tool: Tool | None = None
    """The instrument that found these lines and reports them as a finding; None if no finding is due."""

    @property
    def verdict(self) -> Verdict:
        """The verdict for a wrong reply or state."""
        return Verdict.WRONG_ANSWER

    @property
    def matched_kind(self) -> str:
        """The kind of a symptom, which known mistakes match; always empty for a difference."""
        return ""

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
        """What the value must be, in one sentence."""
        if self.tags & {NEVER_SET, SENTENCE}:
            return self.seen
        joint = "and is" if self.actual.startswith("not ") else "not"
        return f"{self.field} must be {self.expected}, {joint} {self.actual}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One operation of a program, judged from the state in which the program itself was before the operation."""

    expected: Reply
    actual: Reply
    differences: tuple[Difference, ...]
    unchanged: bool = False
    """Whether the state after the operation equals the state before it."""
    broken: tuple[str, ...] = ()
    """A sentence for each invariant that this operation broke."""
    due: frozenset[str] = frozenset()
    """The facets in which the operation should have done something (grader.judge.work)."""
    worked: bool = False
    """Whether the operation did anything, right or wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """Something that a runtime or its instruments saw at an operation (counted from 0), in the runtime's words."""

    operation: int
    verdict: Verdict
    kind: str
    """The word for the symptom in findings, such as "crash"."""
    message: str
    lines: tuple[SourceLine, ...] = ()
    """The submission's lines, innermost call first."""
    tool: Tool = Tool.REPLAY
    by: str = ""
    """The name of the instrument that reported the symptom, shown before the message; empty for the grader itself."""
    detail: str = ""
    """A more specific word than `kind`, for known mistakes to match; if empty, they match `kind`."""
    explains_state: bool = False
    """Whether the symptom probably caused a wrong state after the same call."""
    at_origin: bool = False
    """Whether the lines are where the misused memory was allocated, because the lines that misused it are unknown."""
    facet: str = ""
    """The facet that the symptom makes wrong at the end of the case, if rules count this facet; "" otherwise."""
    made_by: frozenset[str] = frozenset()
    """The calls that made this facet wrong; empty if unknown."""

    @property
    def matched_kind(self) -> str:
        """The kind that known mistakes match."""
        return self.detail or self.kind

    @property
    def seen(self) -> str:
        """The message, after the name of the instrument that reported it."""
        return f"{self.by}: {self.message}" if self.by else self.message


Evidence = Difference | Symptom
"""An observation that shows a fault of a program at one operation."""
