"""The runtime of Python submissions: a module is executed call by call, by the texts of the lab's table."""
# ruff: noqa: ARG002 - a runtime is asked for more than one of Python needs

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from grader.core.case import Case
from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.core.verdict import Tool
from grader.runtime.comparison import Comparison
from grader.runtime.confirm import run_confirmed
from grader.runtime.observation import Played, Replayed
from grader.runtime.options import GradingOptions
from grader.runtime.program import Built, Program
from grader.runtime.protocol import Advised, Observations, Unplaced
from grader.runtime.python import build as checking, play as playing
from grader.runtime.python.derived import Derive
from grader.runtime.python.lines import find_lines
from grader.runtime.python.process import INTERPRETER
from grader.runtime.python.table import CallTable
from grader.system.resources import NeededTool
from grader.system.sandbox import Workspace

_KNOWN_GOOD = b"pass\n"
"""Every case of it ends with an error that the harness explains, so it shows that the harness works here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRuntime:
    """A lab's submissions in Python; see `grader.runtime.protocol.Runtime`."""

    table: CallTable
    given: Mapping[str, Path] = field(default_factory=dict)
    """Modules that a submission may import besides the standard library, by name."""
    derive: Derive | None = None
    """Makes the records that are judged of those that a program sent; None: they are the same."""

    @property
    def source_name(self) -> str:
        """The file that students submit."""
        return f"{self.table.module}.py"

    @property
    def language(self) -> str:
        """The language's short name."""
        return "python"

    @property
    def packages(self) -> tuple[str, ...]:
        """What is installed for it."""
        return ()

    @property
    def programs(self) -> tuple[str, ...]:
        """The interpreter."""
        return (INTERPRETER,)

    @property
    def options(self) -> frozenset[str]:
        """None: memory is not the program's to misuse, nothing is linked, and all advice costs nothing."""
        return frozenset()

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """The interpreter, which is the grader's own."""
        return (NeededTool(name=INTERPRETER, title="python", purpose="runs submissions", makes=Tool.BUILD),)

    def unchecked(self, options: GradingOptions) -> str:
        """Nothing is left out."""
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
    ) -> Built:
        """Compile the module and execute it once."""
        return checking.build(work, source, self.table, self._given)

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Play all cases, each in a process of its own."""

        def run(work: Workspace, program: Program) -> Replayed:
            return playing.play(work, program, cases, table=self.table, given=self._given, derive=self.derive)

        return run_confirmed(work, program, run, known_good=self.known_good)

    def known_good(self, work: Workspace) -> Program:
        """A module whose cases all end for a reason that the harness reports."""
        return Program(content=_KNOWN_GOOD, source_name=self.source_name)

    def inspect(
        self,
        work: Workspace,
        program: Program,
        *,
        comparisons: Sequence[Comparison],
        options: GradingOptions,
        building: float,
        optional: OptionalStages,
    ) -> Observations:
        """There is nothing to see besides differences and endings."""
        return Observations(comparisons=tuple(comparisons))

    def pinpoint(
        self,
        work: Workspace,
        program: Program,
        *,
        source: bytes,
        observed: Observations,
        unplaced: Sequence[Unplaced],
        shown: str | None,
        building: float,
        optional: OptionalStages,
    ) -> Observations:
        """Trace the operations that went wrong, to find the lines behind wrong states and replies."""
        look = partial(find_lines, work, program, observed, unplaced, table=self.table, given=self._given)
        return optional.run(OptionalStage.LINES, look, otherwise=observed)

    def advise(
        self,
        work: Workspace,
        program: Program,
        *,
        source: bytes,
        comparisons: Sequence[Comparison],
        judge: Callable[[Played], Comparison],
    ) -> Advised:
        """None."""
        return Advised(advice=(), cpu_seconds=0.0)

    @property
    def _given(self) -> dict[str, str]:
        return {name: path.read_text(encoding="utf-8") for name, path in self.given.items()}
