"""The protocol of a runtime: how submissions in one language are built, run and observed, and the values it passes.

The code that uses this package works with every language. `grader.judge.compare` makes a `Comparison` of each case that
was played.
"""
# ruff: noqa: ARG002 - a default method has arguments that only the methods that override it use

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from grader.core.case import Case
from grader.core.closure import Closure
from grader.core.errors import OptionalStages
from grader.core.judgement import Difference, Evidence, Judgement, Symptom
from grader.core.rubric import Rule
from grader.core.verdict import Advice, Finding, SourceLine, Tool, Verdict
from grader.system.resources import NeededTool
from grader.system.sandbox import Workspace
from reference.operation import Reply

NO_TIME = "no-time"
"""The kind of an ending that says nothing about its own case: other cases used up the time for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A bad end of a case, in the words of the runtime that observed it."""

    kind: str
    """The word for the ending in findings, such as "crash"."""
    verdict: Verdict
    sentence: str
    """What happened, with the name of the call."""
    lines: tuple[SourceLine, ...] = ()
    """The submission's lines, the most important one first."""
    detail: str = ""
    """A more precise word, by which known mistakes recognise the ending; empty if `kind` is precise enough."""


@dataclass(slots=True, eq=False, kw_only=True)
class PlayedStep:
    """One operation that returned, and the record after it. A runtime may have a subclass with further observations."""

    record: bytes
    lines: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The submission's lines that caused wrong parts of the state, by the name of the part, if a lab derives them."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for pictures, if a lab derives them; they are not judged."""

    def faults(self, *, refused: bool) -> tuple[Difference, ...]:
        """Return faults that the record does not show. `refused`: whether the program rightly refused the call."""
        return ()


@dataclass(slots=True)
class Played:
    """Everything that was reported of one case. A runtime may have a subclass with further observations."""

    case: Case
    steps: Sequence[PlayedStep] = ()
    misfit: bool = False
    """Whether the case ended because a poke does not fit the program's state."""
    bad_end: Ending | None = None
    """How the case ended, if not every operation returned."""
    cpu_seconds: float = 0.0
    dropped: tuple[SourceLine, ...] = ()
    """The submission's lines that opened a file for writing, whose content was dropped."""
    failing: tuple[int, ...] = ()
    """For a generated case: the numbers of the traces that were wrong when they were played together with others."""

    @property
    def ending(self) -> Ending | None:
        """How the case ended, if not every operation returned."""
        return self.bad_end

    @property
    def unexplained_end(self) -> str:
        """How the case ended, if something outside the program could have caused that, too; "" otherwise."""
        return ""

    @property
    def late(self) -> bool:
        """Whether the case ended because a limit of time was reached."""
        return self.bad_end is not None and self.bad_end.verdict is Verdict.TIME_LIMIT_EXCEEDED

    @property
    def next_call(self) -> str:
        """The call of the operation that did not return; "" if all returned."""
        operations = self.case.trace.operations
        return operations[len(self.steps)].name if len(self.steps) < len(operations) else ""

    @property
    def complete(self) -> bool:
        """Whether every operation returned."""
        return len(self.steps) == len(self.case.trace.operations)


@dataclass(frozen=True, slots=True)
class Replayed:
    """All cases, and what the program printed."""

    played: tuple[Played, ...]
    output: bytes
    cpu_seconds: float

    @property
    def unexplained_end(self) -> str:
        """The first case with an unexplained end (see `Played.unexplained_end`), and that end; "" without one."""
        return next((f"case {each.case.name} {why}" for each in self.played if (why := each.unexplained_end)), "")

    @property
    def late(self) -> bool:
        """Whether a case ended because a limit of time was reached."""
        return any(each.late for each in self.played)


COUNTED = "counted"
"""Tag of a difference that is only a number of events, such as wrong frees. Symptoms report the events themselves."""


Shown = tuple[str, str]
"""A call, and a facet in which the call did something that it had to do (`grader.judge.work`)."""


class End(StrEnum):
    """How a case ended."""

    REACHED = "reached"  # every operation returned
    ENDED = "ended"  # an operation did not return; `Played.ending` says how
    NO_TIME = "no-time"  # the time for the whole submission was used up before the case or in it
    UNKNOWN = "unknown"  # the run left the recorded path, and no reference engine is available to continue
    UNREADABLE = "unreadable"  # the program's structures are too broken: the handout no longer says what comes next
    MISFIT = "misfit"  # a poke does not fit the program's state


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one case."""

    case: Case
    played: Played
    expected: tuple[Reply, ...]
    """The reference run's reply to every operation."""
    actual: tuple[Reply, ...]
    """The program's reply to every operation that returned."""
    wrong: Mapping[int, Judgement]
    """The operations (counted from 0) that were wrong, judged from the state in which the program itself was."""
    end: End
    ended_at: int
    """The operation that did not return, or the number of operations."""
    refused: int | None
    """The first operation that the reference accepts and the program refused, or reported as done without doing it."""
    follows: int
    """The number of operations, from the first on, after which the state equalled the reference's in all bytes."""
    shown: frozenset[Shown] = frozenset()
    """The pairs of call and facet that the operations after the first `follows` operations showed."""
    unreadable: str = ""
    """For the end UNREADABLE: why the rest of the case cannot be judged; empty for any other end."""
    unjudged: bool = False
    """Whether the comparison ended because no time was left for it."""

    @property
    def ending_kind(self) -> str:
        """How the case ended, in one word. If an operation did not return, it is `Ending.kind`."""
        ending = self.played.ending if self.end is End.ENDED else None
        return ending.kind if ending is not None else self.end.value

    @property
    def first_wrong(self) -> int:
        """The first operation that is wrong or did not return; the number of operations if there is none."""
        return min([self.ended_at, *self.wrong])

    def is_cleanup(self, number: int) -> bool:
        """Return whether the grader added this operation to clean up after the case."""
        operations = self.case.trace.operations
        return 0 < number < len(operations) and operations[number].implicit

    def facets(self, rule: Rule) -> frozenset[str]:
        """Return the facets of all differences that count for this rule."""
        operations = self.case.trace.operations
        return frozenset(
            difference.facet
            for number, judgement in self.wrong.items()
            for difference in judgement.differences
            if rule.counts(difference.facet, operations[number].name)
            and (rule.covers_cleanup or not self.is_cleanup(number))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingOptions:
    """The options of one grading, whichever cases are run."""

    seed: int | None = None
    """The seed of random values, such as words that fill memory; None: the rubric's seed."""
    memory_checker: bool = True
    """Whether a tool looks for memory errors that the grader itself cannot see, if the runtime has such a tool."""
    advise: bool = False
    """Whether to look for advice, which costs no points but takes time."""
    allowed: tuple[str, ...] = ()
    """Symbols that cause no rejection, because a person has looked at them."""
    stock: bool = False
    """Whether programs are linked exactly as the handout's command does it, not in the fastest way: for disputes."""


DEFAULTS = GradingOptions()
"""A grading with the memory checker and without advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program that a build made. A runtime may have a subclass with further results of its builds."""

    content: bytes
    source_name: str
    begins_slowly: bool = False
    """Whether the program's start takes most of the time of a short case; then cases share processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The result of a build. If it failed, `program` is None. There may be findings with a program too."""

    program: Program | None
    findings: tuple[Finding, ...] = ()
    advice: tuple[Advice, ...] = ()
    allowed: tuple[str, ...] = ()
    """Symbols that would have been rejected if they had not been allowed."""
    missing: tuple[str, ...] = ()
    """The demanded names that are not defined, although the rest can be run."""
    unwritten: frozenset[str] = frozenset()
    """The operations that call something whose body is empty or only returns."""
    stopped: bool = False
    """Whether the build was stopped because it needed too much time or memory; then it is not run again."""
    late: bool = False
    """Whether a limit of time was reached, which may be this machine's fault."""
    unexplained_end: str = ""
    """How the build ended, if something outside the submission could have caused that, too."""
    command: str = ""
    cpu_seconds: float = 0.0

    @property
    def rejected(self) -> bool:
        """Whether a person must look at the submission before any of it is run."""
        return any(finding.verdict is Verdict.REJECTED for finding in self.findings)


def build_finding(
    kind: str,
    message: str,
    *,
    verdict: Verdict = Verdict.COMPILE_ERROR,
    tool: Tool = Tool.BUILD,
    field: str = "",
    source: tuple[SourceLine, ...] = (),
) -> Finding:
    """Return a finding of a build, which belongs to no rule."""
    return Finding(rule="", verdict=verdict, tool=tool, kind=kind, message=message, field=field, source=source)


Place = tuple[int, int]
"""Numbers of a case and of one of its operations, both from 0."""

Unplaced = tuple[int, Evidence]
"""A case's number, and its cause: a difference without lines, or a symptom, whose lines only say where it was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a wrong reply or value comes from, as an instrument saw it or a search found it."""

    lines: tuple[SourceLine, ...] = ()
    tool: Tool | None = None
    """The instrument that found these lines and reports them as a finding; None if no finding is due."""
    sentence: str = ""
    """What else is known about the line."""
    stored: bool = False
    """Whether the line is known to store the wrong value; otherwise an earlier call may have left the value."""
    leads: bool = False
    """Whether the sentence comes before the sentence about the mistake."""
    explains_all: bool = False
    """Whether everything else that is wrong follows from what the line does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What was observed of a program that was played and compared. A runtime may have a subclass with more."""

    comparisons: tuple[Comparison, ...]
    symptoms: Mapping[int, Sequence[Symptom]] = field(default_factory=dict)
    """For each case, what was observed in addition to differences and the end of the case."""
    origins: Mapping[Place, Mapping[str, Origin]] = field(default_factory=dict)
    """Where the differences of a wrong operation come from, as instruments saw it, by a tag of the differences."""
    unseen: frozenset[int] = frozenset()
    """Cases that were not observed in full because of the program itself."""
    coverage: str | None = None
    """What the instruments did not check, in sentences; "" if they checked all, None if no instrument was run."""
    searched: Mapping[Place, Origin] = field(default_factory=dict)
    """What searches found about operations that went wrong."""
    advice: tuple[Advice, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of programs, by the purpose for which they were run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """The advice, and the CPU seconds that it took to find."""

    advice: tuple[Advice, ...]
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """How a program went through a closure."""

    sums: array[int] | None
    """The checksum of each state; None if the program did not come to the end of the tour."""
    fits: bool
    """Whether the program's states could be kept; otherwise the closure says nothing about the program."""
    state: int
    """If the program did not come to the end: the state, and the number of the call that did not return."""
    call: int
    cpu_seconds: float


class Runtime(Protocol):
    """How a lab's submissions in one language are built, run and observed. A wrong submission raises no exception.

    A runtime without instruments inherits the methods that have a default here.
    """

    @property
    def source_name(self) -> str:
        """The file that students submit."""

    @property
    def language(self) -> str:
        """The short name of the language, such as "c" or "python"; bundles choose their texts by it."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The Debian packages that the runtime needs in addition to those of the grader, such as a compiler."""
        return ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of all programs that the runtime may start in the sandbox."""

    @property
    def options(self) -> frozenset[str]:
        """The names of the `GradingOptions` that the runtime uses, without the seed."""
        return frozenset()

    @property
    def plays_generated(self) -> bool:
        """Whether the runtime plays cases of random traces, many traces in one process."""
        return False

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """Return the programs that must be installed for a grading with these options, such as a compiler."""

    def pace(self) -> float:
        """Return how many times slower than a usual machine this one is, as measured once (`Budget.pace`)."""
        return 1.0

    def pace_now(self) -> float:
        """Build and play a known-good program now, and return how many times slower than a usual machine this one is.

        Raises `GraderError` if the known-good program fails.
        """
        return 1.0

    def unchecked(self, options: GradingOptions) -> str:
        """Return what a grading with these options does not check, in sentences; empty if it checks all."""
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

        `beside` are files that were submitted with the source, by name; they only explain failures. `relaxed` forgives
        warnings and missing functions. `allowed` are symbols that cause no rejection, because a person has looked at
        them. `stock`: see `GradingOptions`. `optional` runs what cannot change points.
        """

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Run the cases and record what the program reports; `optional` runs what cannot change points.

        Raises `GraderError` when the grader's side breaks.
        """

    def play_variants(self, work: Workspace, programs: Sequence[Program], case: Case) -> Iterator[Played]:
        """Play the case on each of these programs, which differ a little, and yield the results. Confirm no bad end.

        This is for searches that try many programs. Raises `GraderError` when the grader's side breaks.
        """
        for program in programs:
            yield self.play(work, program, [case], optional=OptionalStages()).played[0]

    def walk(self, work: Workspace, program: Program, closure: Closure) -> Walked | None:
        """Play all calls in all states of a small engine (`Closure`). Return None if the runtime cannot restore states.

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
        """Let instruments look at the cases of `comparisons`; return what they observe in addition to the differences.

        `optional` runs what cannot change points. Raises `GraderError` when an instrument on which points depend
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
        quick: bool = False,
    ) -> Observations:
        """Look for lines that are not known yet, and add them to what was observed.

        `order` has the numbers of the failing cases, the most important first. `unplaced` has, in this order, the
        causes to search lines for. If `quick`, no other cases are played to compare them with these. None of this
        can change points, so `optional` runs it.
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
        """Look for advice, which costs no points. Raises `GraderError` when the grader's side breaks."""
        return Advised(advice=(), cpu_seconds=0.0)
