"""How submissions in one language are built, run and observed. Nothing above this room knows a language by its ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from grader.core.case import Case
from grader.core.optional_stages import OptionalStages
from grader.core.verdict import Advice
from grader.runtime.comparison import Comparison
from grader.runtime.memory_faults import Checked
from grader.runtime.observation import Played, Replayed
from grader.runtime.options import GradingOptions
from grader.runtime.program import Built, Program
from grader.runtime.source_lines import Lines, Named, Place
from grader.runtime.suspicion import Suspicion
from grader.system.sandbox import Workspace
from grader.system.tools import NeededTool

__all__ = ["Advised", "Observations", "Runtime", "Suspect", "Suspected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What instruments observed of a program that was played and compared."""

    comparisons: tuple[Comparison, ...]
    """With what a further run observed of memory."""
    checked: Checked | None = None
    """What an instrument reported of the use of memory; None when there is none, or when it was not wanted."""
    named: Mapping[Place, Named] = field(default_factory=dict)
    """The lines of wrong replies and values, where they were looked for."""
    advice: tuple[Advice, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of programs, by what they were run for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspected:
    """What a runtime should look at more closely."""

    shown: str | None
    """The name of the case that the diagnosis shows."""
    suspicions: Sequence[Suspicion]


Suspect = Callable[[Observations], Suspected]
"""The judge's view of what was observed so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """The advice, and the CPU seconds that it took to find."""

    advice: tuple[Advice, ...]
    cpu_seconds: float


class Runtime(Protocol):
    """One language, with what a lab's submissions in it are built with. A wrong submission raises nothing."""

    @property
    def source_name(self) -> str:
        """The file that students submit."""

    @property
    def language(self) -> str:
        """The short name of the language, by which bundles choose what they say of it: "c", "python"."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Debian's packages that it needs, besides those of the grader itself (a C compiler, Python)."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of all programs that it may start in the sandbox."""

    @property
    def options(self) -> frozenset[str]:
        """The names of the `GradingOptions` that mean something to it, besides the seed."""

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """The programs that must be installed for a grading with these options, such as a compiler."""

    def unchecked(self, options: GradingOptions) -> str:
        """What a grading with these options does not check, in sentences; empty when nothing is left out."""

    def build(
        self,
        work: Workspace,
        source: bytes,
        *,
        beside: Mapping[str, bytes],
        optional: OptionalStages,
        relaxed: bool = False,
        allowed: frozenset[str] = frozenset(),
    ) -> Built:
        """Make a program of a submission.

        `beside` are files that were submitted with it; they only explain failures. `relaxed` forgives warnings and
        missing functions. `allowed` are symbols for which nothing is rejected: somebody has looked at them. What cannot
        change points is run by `optional`.
        """

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Run the cases and record what the program reports; `optional` runs what cannot change points.

        Raises `GraderError` when the grader's side breaks.
        """

    def inspect(
        self,
        work: Workspace,
        program: Program,
        *,
        source: bytes,
        comparisons: Sequence[Comparison],
        options: GradingOptions,
        suspect: Suspect,
        building: float,
        optional: OptionalStages,
    ) -> Observations:
        """Let instruments look at the same cases, and look for lines where the judge suspects something.

        `building` is the CPU time of the build in seconds: a measure of this machine's speed. What cannot change points
        is run by `optional`. Raises `GraderError` when an instrument on which points depend does not work on this
        machine.
        """

    def source_lines(self, work: Workspace, program: Program, stacks: Iterable[tuple[int, ...]]) -> Lines:
        """The submission's lines on each stack of addresses that was observed."""

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
