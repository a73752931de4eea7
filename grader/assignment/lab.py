"""The definition of an assignment: data, a model, a driver and the texts for its mistakes.

The grader knows no lab by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.core.case import Case, Grammar
from grader.core.closure import SmallEngine
from grader.core.judgement import Judgement
from grader.core.model import ModelFactory
from grader.core.picture import Chart, StatePart
from grader.core.rubric import Rubric, Rule
from grader.runtime.protocol import GradingOptions, Runtime
from reference.operation import Operation, Trace
from reference.oracle import Generator

ONLY = "only-"
"""Prefix of a situation's word: all wrong calls share the situation, no right call has it (grader.judge.calls)."""

SEVERAL_TARGETS = "several-targets"
"""The circumstance that a case has more than one engine (or other target of a lab's operations), or had one before."""

STORED = "stored"
"""The circumstance that the call is known to store the wrong value, other than by filling a new table."""

Predicate = Callable[[Judgement], bool]
"""Whether something holds of a judged call. A lab gives its predicates names, for `where` in its known mistakes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One line of a lab's table of mistakes: what was seen, which rule it breaks, and the hint for the student.

    Every given condition must hold; the first matching mistake of the table is used. `hint` may use
    {call}, {field}, {expected}, {actual}, {wanted} (a sentence with what must be there), {refusal} (what the call
    returns when it fails), {line} (of the student's file), {clause} (the sentence by which the reference decided),
    {reply} (the expected reply), {note} (of the difference) and {message} (the finding's message).
    """

    rule: str
    hint: str
    calls: frozenset[str] = frozenset()
    facets: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    """Kinds of findings, such as "crash" or "leak"."""
    circumstances: frozenset[str] = frozenset()
    """Words of the reference's reply, `SEVERAL_TARGETS` in a case with more than one, `STORED` where the wrong value
    is known to be stored. For a call that was wrongly refused or accepted also `ONLY` with a situation that all such
    calls share and no right call has."""
    tags: frozenset[str] = frozenset()
    part: str = ""
    """A part of the name of the field that differs."""
    clause: str | Mapping[str, str] = field(default="", hash=False)
    """The name of the broken sentence of the handout; a mapping from call to name where it depends on the call.
    Omitted: the sentence by which the reference decided."""
    never: frozenset[str] = frozenset()
    """The mistake matches only if none of these calls did its work in any case, although it had to."""
    where: Predicate | None = None
    """A condition that needs code: one of the lab's predicates."""


def _no_program(case: Case, operation: int) -> str:
    return f"# no program is made of {case.name}, operation {operation + 1}\n"


Charts = Callable[[Trace, Sequence[Mapping[str, Any]], int], Iterable[Chart]]
"""Draws a trace and the described records after its first operations, which may be a program's: of any content. The
number is that of the operation to look at, from 1."""


Mend = Callable[[Case, Rule, frozenset[str]], Mapping[int, Operation]]
"""Returns for a case, its rule and the calls that go wrong in it what is done behind which operation; nothing where the
rule would judge the harness's work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """An assignment. `grader.labs.lab_files` makes it of what its author gives and of the files in its folder of cases.

    Another assignment is another instance of this class.
    """

    name: str
    title: str
    cases: Path
    grammar: Grammar
    rubric: Rubric
    read_rubric: Callable[[Path], Rubric]
    """Reads another rubric of this assignment. Raises `RubricError` with all mistakes."""
    model: ModelFactory
    runtime: Runtime
    """How submissions are built and run."""
    mistakes: tuple[Mistake, ...]
    reproduce: Callable[[Case, int], str] = _no_program
    """The case up to and including that operation, as a standalone program."""
    reproduce_command: str = ""
    """How it is run, beside the submission."""
    generator: Callable[[], Generator | None] = lambda: None
    """Returns what makes random traces for a search; None: there is nothing, or the reference engine is not here."""
    smalls: Callable[[], Sequence[SmallEngine]] = tuple
    """Makes the references of the small engines whose transitions are checked: one, if the runtime restores states."""
    random_settings: Callable[[int], dict[str, int]] = lambda _: {}
    """The settings of the random trace of this number."""
    setting_words: Mapping[str, str] = field(default_factory=dict)
    """What a setting of a trace means, as the end of "In this trace ...". What is not here, or 0, is not told."""
    derived: frozenset[str] = frozenset()
    """The facets that a reproduction cannot show, because they are worked out of what a submission reports."""
    oracle_files: tuple[Path, ...] = ()
    """The files of an oracle that is nearly the solution, so that students must not have it."""
    situation_words: Mapping[str, str] = field(default_factory=dict)
    """The sentence for each circumstance of a reply, the most informative first; "CALL WORD" has the sentence for that
    call. Circumstances without a sentence are not told."""
    is_odd: Callable[[Trace], bool] = lambda _: False
    """Whether the set-up is unusual, such as memory at an odd address. Such a case is shown after plain ones."""
    notation: Mapping[str, str] = field(default_factory=dict)
    """The meaning of the short words in operations and replies, for a report's readers; `@2` stands for all numbers."""
    describe_poke: Callable[[Operation], str] = str
    picture: Callable[[dict[str, Any]], Iterable[StatePart]] = lambda _: ()
    """A described record as parts of a picture, for reports that draw and for `grade explain`."""
    charts: Charts | None = None
    """The charts of a run."""
    labels_hold: Callable[[], bool] = lambda: True
    """Whether the tools of this machine are those that the labels of the lab's samples were made with. An attack often
    targets a certain release; with another one its label names more verdicts."""
    built: Callable[[Any], Iterable[Operation]] | None = None
    """The pokes by which the harness builds the state of a model, so that a call can be judged without the calls before
    it; None: it cannot."""
    mend: Mend | None = None
    """The pokes by which the harness mends what calls left that went wrong, where a process goes on behind them; None:
    it cannot."""
    starter: Mapping[str, Path] = field(default_factory=dict)
    """The files that students begin with, by name: they build, and earn no points yet."""

    @property
    def source_name(self) -> str:
        """The name of the file that students submit."""
        return self.runtime.source_name

    def told_settings(self, trace: Trace) -> list[str]:
        """Return a sentence for each of a trace's settings that has words."""
        return [f"In this trace {words}." for name, words in self.setting_words.items() if trace.settings.get(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(GradingOptions):
    """How a class is graded: the assignment, its cases, and the options of each grading."""

    lab: str
    case: str = "*"
    public_only: bool = False
    """Whether hidden cases are left out; always true where a file replaces them (grader.assignment.case_selection)."""
