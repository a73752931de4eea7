"""The protocol of a runtime: how submissions in one language are built, run and observed, and the values it passes.

Nothing above this room depends on a language.
"""
# ruff: noqa: ARG002 - a default has arguments that only a runtime of its own needs

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from grader.core.case import Case
from grader.core.closure import Closure
from grader.core.judgement import Difference, Judgement, Symptom
from grader.core.optional_stages import OptionalStages
from grader.core.verdict import Advice, Finding, SourceLine, Tool, Verdict
from grader.runtime.comparison import Comparison
from grader.runtime.observation import Played, Replayed
from grader.system.resources import NeededTool
from grader.system.sandbox import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingOptions:
    """The options of one grading, whichever cases are run."""

    seed: int | None = None
    """The seed of random values, such as words that fill memory; None: the rubric's seed."""
    memory_checker: bool = True
    """Whether a tool looks for wrong uses of memory that the grader itself cannot see, where the runtime has one."""
    advise: bool = False
    """Whether to look for advice, which costs no points but takes time."""
    allowed: tuple[str, ...] = ()
    """Symbols for which nothing is rejected, because a person has looked at them."""
    stock: bool = False
    """Whether programs are linked as the handout's own command does it, not as it costs least: for disputes."""


DEFAULTS = GradingOptions()
"""A grading with the memory checker and without advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program that a build made. A runtime may have a class of its own for what else it makes."""

    content: bytes
    source_name: str
    begins_slowly: bool = False
    """Whether most of a short case's time would be spent until it can be called; then cases share processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result of a build. Without `program` it failed; there may be findings with a program too."""

    program: Program | None
    findings: tuple[Finding, ...] = ()
    advice: tuple[Advice, ...] = ()
    allowed: tuple[str, ...] = ()
    """Symbols that would have been rejected if they had not been allowed."""
    missing: tuple[str, ...] = ()
    """What is demanded and not there, although the rest can be run."""
    unwritten: frozenset[str] = frozenset()
    """The operations that call something whose body is empty or only returns."""
    stopped: bool = False
    """Whether the build needed so much that it had to be stopped; then it is not run again."""
    late: bool = False
    """Whether a limit of time was reached, which may be this machine's fault."""
    command: str = ""
    cpu_seconds: float = 0.0

    @property
    def rejected(self) -> bool:
        """Whether a person must look at it before anything of it is run."""
        return any(finding.verdict is Verdict.REJECTED for finding in self.findings)


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
    sentence: str = ""
    """What else is known about the line."""
    stored: bool = False
    """Whether the wrong value is known to be stored there, and is not left over from before."""
    leads: bool = False
    """Whether the sentence comes before what is said of the mistake."""
    explains_all: bool = False
    """Whether everything else that is wrong follows from what the line does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What was observed of a program that was played and compared. A runtime may have a class of its own."""

    comparisons: tuple[Comparison, ...]
    symptoms: Mapping[int, Sequence[Symptom]] = field(default_factory=dict)
    """By case, what was seen besides differences and the end of the case."""
    culprits: Mapping[Place, Mapping[str, Culprit]] = field(default_factory=dict)
    """The lines behind the differences of an operation, by a tag of those differences."""
    unseen: frozenset[int] = frozenset()
    """Cases that were not observed in full because of the program itself."""
    coverage: str | None = None
    """What the instruments left out, in sentences; "" for nothing, None where none of them was run."""
    named: Mapping[Place, Named] = field(default_factory=dict)
    """The lines of wrong replies and values, where they were looked for."""
    advice: tuple[Advice, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of programs, by what they were run for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """The operation in which a case first went wrong (both counted from 0), with no line known."""

    case: int
    operation: int
    comparison: Comparison
    kind: str
    """The kind of a symptom, such as "crash"; empty where a difference shows the fault."""
    difference: Difference | None
    judgement: Judgement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """The advice, and the CPU seconds that it took to find."""

    advice: tuple[Advice, ...]
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """How a program went through a closure."""

    sums: array[int] | None
    """The checksum of each state; None where the program did not come to the end of the tour."""
    fits: bool
    """Whether its states could be kept; otherwise the closure says nothing about it."""
    state: int
    """Where it did not come to the end: the state, and the number of the call that did not return."""
    call: int
    cpu_seconds: float


class Runtime(Protocol):
    """One language, with what a lab's submissions in it are built with. A wrong submission raises nothing.

    A runtime without instruments inherits what has a default here.
    """

    @property
    def source_name(self) -> str:
        """The file that students submit."""

    @property
    def language(self) -> str:
        """The short name of the language, by which bundles choose what they say of it: "c", "python"."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Debian's packages that it needs, besides those of the grader itself (such as a compiler)."""
        return ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of all programs that it may start in the sandbox."""

    @property
    def options(self) -> frozenset[str]:
        """The names of the `GradingOptions` that mean something to it, besides the seed."""
        return frozenset()

    @property
    def plays_generated(self) -> bool:
        """Whether it plays cases of random traces, many traces in one process."""
        return False

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """The programs that must be installed for a grading with these options, such as a compiler."""

    def pace(self) -> float:
        """How many times slower than a usual machine this one is, as it was measured once (`Budget.pace`)."""
        return 1.0

    def pace_now(self) -> float:
        """Build and play a known-good program now, and return how many times slower than a usual machine this one is.

        Raises `GraderError` when that is not possible.
        """
        return 1.0

    def unchecked(self, options: GradingOptions) -> str:
        """What a grading with these options does not check, in sentences; empty when nothing is left out."""
        return ""

    def build(
        self,
        work: Workspace,
        source: bytes,
        *,
        beside: Mapping[str, bytes],
        optional: OptionalStages,
        relaxed: bool = False,
        allowed: frozenset[str] = frozenset(),
        stock: bool = False,
    ) -> Built:
        """Make a program of a submission.

        `beside` are files that were submitted with it; they only explain failures. `relaxed` forgives warnings and
        missing functions. `allowed` are symbols for which nothing is rejected: somebody has looked at them. `stock`:
        see `GradingOptions`. What cannot change points is run by `optional`.
        """

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Run the cases and record what the program reports; `optional` runs what cannot change points.

        Raises `GraderError` when the grader's side breaks.
        """

    def walk(self, work: Workspace, program: Program, closure: Closure) -> Walked | None:
        """Walk through the closure of a small engine; None where the runtime cannot restore a program's states.

        Raises `GraderError` when the grader's side breaks.
        """
        return None

    def inspect(
        self,
        work: Workspace,
        program: Program,
        *,
        comparisons: Sequence[Comparison],
        options: GradingOptions,
        optional: OptionalStages,
    ) -> Observations:
        """Return what was seen besides differences; instruments look at the same cases.

        What cannot change points is run by `optional`. Raises `GraderError` when an instrument on which points depend
        does not work on this machine.
        """
        return Observations(comparisons=tuple(comparisons))

    def pinpoint(
        self,
        work: Workspace,
        program: Program,
        *,
        source: bytes,
        observed: Observations,
        unplaced: Sequence[Unplaced],
        order: Sequence[int],
        optional: OptionalStages,
    ) -> Observations:
        """Look for lines that are not known yet, and add them to what was observed.

        `order` are the failing cases by number, the first one to look at first; `unplaced` is, in this order, what the
        judge found without a line. Nothing of this can change points, so `optional` runs it.
        """
        return observed

    def advise(
        self,
        work: Workspace,
        program: Program,
        *,
        source: bytes,
        comparisons: Sequence[Comparison],
        judge: Callable[[Played], Comparison],
    ) -> Advised:
        """Look for what costs no point. Raises `GraderError` when the grader's side breaks."""
        return Advised(advice=(), cpu_seconds=0.0)
