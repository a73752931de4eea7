"""The definition of an assignment (a lab): data, a model, a runtime, and the known mistakes with their hints.

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
"""Prefix of a situation's word: all wrong calls are in the situation, and no right call is (grader.judge.calls)."""

SEVERAL_TARGETS = "several-targets"
"""The circumstance that a case makes more than one engine (or other target), at once or one after another."""

STORED = "stored"
"""The circumstance that the wrong value was certainly stored by the call, and not by filling a new table."""

Predicate = Callable[[Judgement], bool]
"""A condition on a judged call. A lab gives its predicates names, for `where` in its known mistakes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """An entry of a lab's known mistakes: what was seen, which rule it breaks, and the hint for the student.

    Every given condition must hold. The first matching entry is used. `hint` may use
    {call}, {field}, {expected}, {actual}, {wanted} (a sentence with what must be there), {refusal} (what the call
    returns when it fails), {line} (of the student's file), {clause} (the sentence by which the reference decided),
    {reply} (the expected reply), {note} (of the difference) and {message} (of the symptom).
    """

    rule: str
    hint: str
    calls: frozenset[str] = frozenset()
    facets: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    """Kinds of findings, such as "crash" or "leak"."""
    circumstances: frozenset[str] = frozenset()
    """Circumstances of the reference's reply, `SEVERAL_TARGETS`, or `STORED`. For a call wrongly refused or accepted
    also `ONLY` with the word of a situation."""
    tags: frozenset[str] = frozenset()
    part: str = ""
    """A part of the name of the field that differs."""
    clause: str | Mapping[str, str] = field(default="", hash=False)
    """The name of the broken sentence of the handout, or a mapping from call to name. If omitted, it is the sentence by
    which the reference decided."""
    never: frozenset[str] = frozenset()
    """Calls that did their work in no case, although they should have."""
    where: Predicate | None = None
    """A condition that needs code: one of the lab's predicates."""


def _no_program(case: Case, operation: int) -> str:
    return f"# no program is made of {case.name}, operation {operation + 1}\n"


Charts = Callable[[Trace, Sequence[Mapping[str, Any]], int], Iterable[Chart]]
"""Draws a trace. Takes the trace, the described records after its first operations, and the number (from 1) of the
operation to look at. The records may be those of a program, with any content."""


Mend = Callable[[Case, Rule, frozenset[str]], Mapping[int, Operation]]
"""Takes a case, its rule and the calls that go wrong in it. Returns the operation to do after an operation, by the
index of that operation; {} if the rule would judge the work of the harness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """An assignment. `grader.labs.lab_files` makes it from the author's values and the files in the folder of cases."""

    name: str
    title: str
    cases: Path
    grammar: Grammar
    rubric: Rubric
    read_rubric: Callable[[Path], Rubric]
    """Reads another rubric of this assignment. Raises `RubricError` with all mistakes."""
    model: ModelFactory
    runtime: Runtime
    mistakes: tuple[Mistake, ...]
    reproduce: Callable[[Case, int], str] = _no_program
    """Returns the case up to and including an operation, as a standalone program. The operation counts from 0."""
    reproduce_command: str = ""
    """The command that runs this program next to the submission."""
    generator: Callable[[], Generator | None] = lambda: None
    """Returns the generator of random traces for a search; None without a generator or a reference engine."""
    smalls: Callable[[], Sequence[SmallEngine]] = tuple
    """Returns the small engines whose transitions are checked; only one if the runtime restores states."""
    random_settings: Callable[[int], dict[str, int]] = lambda _: {}
    """Returns the settings of the random trace with this number."""
    setting_words: Mapping[str, str] = field(default_factory=dict)
    """The meaning of a setting of a trace, as the end of "In this trace ...". Other settings are not shown."""
    derived: frozenset[str] = frozenset()
    """The facets that a reproduction cannot show, because the grader derives them from a log."""
    oracle_files: tuple[Path, ...] = ()
    """The files of the oracle, if it is nearly the solution. Students must not get these files."""
    situation_words: Mapping[str, str] = field(default_factory=dict)
    """The sentence for each circumstance of a reply, the most informative first. The key "CALL WORD" is for one call.
    Circumstances without a sentence are not shown."""
    is_odd: Callable[[Trace], bool] = lambda _: False
    """Whether the set-up is unusual, such as memory at an odd address. Reports show such a case after plain ones."""
    notation: Mapping[str, str] = field(default_factory=dict)
    """The meaning of short words in operations and replies, for readers of reports. `@2` means any `@N`."""
    describe_poke: Callable[[Operation], str] = str
    picture: Callable[[dict[str, Any]], Iterable[StatePart]] = lambda _: ()
    """Returns the parts of a picture of a described record, for reports and for `grade explain`."""
    charts: Charts | None = None
    """Draws the charts of a run; None without charts."""
    labels_hold: Callable[[], bool] = lambda: True
    """Whether the labels of the samples were made with the same releases of the tools as this machine has. An attack
    often targets one release of a tool. With other releases the verdicts in its label's `elsewhere` are allowed too."""
    built: Callable[[Any], Iterable[Operation]] | None = None
    """Returns the pokes with which the harness builds the state of a model, so that a call can be judged without the
    earlier calls. None if the harness cannot do that."""
    mend: Mend | None = None
    """Returns the pokes with which the harness repairs the state after wrong calls, so that a process can continue.
    None if the harness cannot do that."""
    starter: Mapping[str, Path] = field(default_factory=dict)
    """The files with which students begin, by name. Their build succeeds, and they earn no points."""

    @property
    def source_name(self) -> str:
        """The name of the file that students submit."""
        return self.runtime.source_name

    def told_settings(self, trace: Trace) -> list[str]:
        """Return a sentence for each setting of a trace that is not 0 and has a description."""
        return [f"In this trace {words}." for name, words in self.setting_words.items() if trace.settings.get(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(GradingOptions):
    """How a class is graded: the assignment, its cases, and the options of each grading."""

    lab: str
    case: str = "*"
    public_only: bool = False
    """Whether hidden cases are left out. Always true if `HIDDEN_FILE` replaces them (grader.assignment.case_files)."""
