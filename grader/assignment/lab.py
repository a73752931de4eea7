"""What makes an assignment: data, a model, a driver and the words for its mistakes. The grader knows no lab by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.core.case import Case, Grammar
from grader.core.picture import Part
from grader.core.rubric import Rubric
from grader.runtime.protocol import Runtime
from reference.model import Judgement, ModelFactory
from reference.operation import Operation, Trace

__all__ = ["ONLY", "SEVERAL_TARGETS", "STORED", "Clue", "Lab"]

ONLY = "only-"
"""Before a situation's word: that of all wrong calls and of no right one (grader.judge.patterns)."""

SEVERAL_TARGETS = "several-targets"
"""The circumstance that a case has more than one engine, or whatever a lab's operations go to, or had one before."""

STORED = "stored"
"""The circumstance that the wrong value is known to be stored by the call; not that of a table just filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """One line of a lab's table of mistakes: what was seen, which rule that breaks, what to tell the student.

    Every condition that is given must hold; the first clue of the table that fits is taken. `hint` may use
    {call}, {field}, {expected}, {actual}, {wanted} (what must be there, in a sentence), {refusal} (what the call
    returns when it fails), {line} (of the student's file), {clause} (the sentence by which the reference decided),
    {reply} (what had to come), {note} (of the difference) and {said} (the finding's own words).
    """

    rule: str
    hint: str
    calls: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of findings, such as "crash" or "leak"."""
    circumstances: frozenset[str] = frozenset()
    """Words of the reference's reply, `SEVERAL_TARGETS` in a case with more than one, `STORED` where the wrong value
    is known to be stored. Of a call that was refused or accepted wrongly also ONLY with a situation that all such
    calls share and no right one has."""
    tags: frozenset[str] = frozenset()
    part: str = ""
    """A part of the name of the field that differs."""
    clause: str | Mapping[str, str] = field(default="", hash=False)
    """The sentence of the handout that was broken, by its name there; by call where it depends on that. Left out: the
    one by which the reference decided."""
    never: tuple[str, ...] = ()
    """Calls that all do their work in no case at all, though they are asked to."""
    where: Callable[[Judgement], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """An assignment. A further one is another value of this record."""

    name: str
    title: str
    handout: str
    cases: Path
    grammar: Grammar
    rubric: Rubric
    model: ModelFactory
    runtime: Runtime
    """How submissions are built and run."""
    clues: tuple[Clue, ...]
    situations: Callable[[Trace], tuple[frozenset[str], ...]]
    """For each operation of a trace the words that fit its call."""
    situation_words: Mapping[str, str]
    """Each of these words with its sentence, what tells most first; "CALL WORD" has the sentence for that call."""
    is_odd: Callable[[Trace], bool]
    """Is it set up as few are, such as with a pool that ends amid a block? Such a case is shown after plain ones."""
    notation: Mapping[str, str]
    """What the short words of its operations and replies mean, for who reads a report; `@2` stands for all numbers."""
    describe_poke: Callable[[Operation], str]
    draw: Callable[[dict[str, Any]], Iterable[str]]
    """A described record as lines of rich markup, for `grade explain`."""
    picture: Callable[[dict[str, Any]], Iterable[Part]]
    """A described record as parts of a picture, for reports that draw."""
    reproduce: Callable[[Case, int], str]
    """The case up to and with that operation as a standalone program."""
    reproduce_command: str
    starter: Mapping[str, Path]
    """Files that students begin with, by their names: they build, and earn nothing yet."""

    @property
    def source_name(self) -> str:
        """The file that students submit."""
        return self.runtime.source_name
