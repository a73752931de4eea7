"""The runtime of Python submissions: a module is executed call by call, by the lab's driver."""
# ruff: noqa: ARG002 - the protocol has arguments that Python does not need

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from grader.core.case import Case
from grader.core.errors import GraderError
from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.core.verdict import Advice, Tool, Visibility
from grader.runtime.comparison import Comparison
from grader.runtime.observation import Replayed
from grader.runtime.protocol import Built, GradingOptions, Observations, Program, Runtime, Unplaced
from grader.runtime.python import build as checking, play as playing, process
from grader.runtime.python.driver import PythonDriver
from grader.runtime.python.lines import find_lines
from grader.runtime.python.play import Derive
from grader.runtime.runs import measured_once, run_confirmed, timely
from grader.system import sandbox
from grader.system.budget import TIMING_PACE, Budget, pace_of
from grader.system.resources import NeededTool
from grader.system.sandbox import Workspace

_KNOWN_GOOD = b"pass\n"
"""Every case of it ends with an error that the harness explains, so it shows that the harness works here."""
_DROPPED = "dropped"
_IS_DROPPED = "what is written to this file is dropped when it is graded"
_USUAL_SECONDS = 0.035
"""CPU seconds that a usual machine takes to check a known-good module: one and a half times those of a server of
2024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRuntime(Runtime):
    """A lab's submissions in Python; see `grader.runtime.protocol.Runtime`."""

    driver: PythonDriver
    derive: Derive | None = None
    """Makes the records that are judged of those that a program sent; None: they are the same."""

    @property
    def source_name(self) -> str:
        """The file that students submit."""
        return self.driver.file

    @property
    def language(self) -> str:
        """The language's short name."""
        return "python"

    @property
    def plays_generated(self) -> bool:
        """It does."""
        return True

    @property
    def programs(self) -> tuple[str, ...]:
        """The interpreter."""
        return (process.interpreter(),)

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """The interpreter. If none works it is the grader's own, and whoever grades is told why."""
        name, purpose = process.OWN, "runs submissions"
        with contextlib.suppress(GraderError):
            name = process.interpreter()
        if name != process.OWN:
            purpose = f"{name} runs submissions, because {process.OWN} does not run in the sandbox"
        return (NeededTool(name=name, title="python", purpose=purpose, makes=Tool.BUILD),)

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
        """Compile the module and execute it once."""
        return timely(work, self, lambda: checking.build(work, source, self.driver))

    def pace(self) -> float:
        """Return what was measured when this interpreter was first used."""
        return measured_once(self.pace_now, process.interpreter().encode(), sys.version.encode())

    def pace_now(self) -> float:
        """Check a known-good module."""
        with sandbox.workspace(Budget(pace=TIMING_PACE), tools=self.programs) as work:
            checking.build(work, _KNOWN_GOOD, self.driver)
            return pace_of(work.budget.paid * work.budget.pace, _USUAL_SECONDS)

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Play all cases, each in a process of its own."""

        def run(work: Workspace, program: Program) -> Replayed:
            return playing.play(work, program, cases, driver=self.driver, derive=self.derive)

        return run_confirmed(work, program, run, runtime=self, known_good=self.known_good)

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
        optional: OptionalStages,
    ) -> Observations:
        """Add advice on the lines that open files for writing, as public cases showed them."""
        public = (each for each in comparisons if each.case.visibility is Visibility.PUBLIC)
        places = {each.played.dropped[:1]: each.played.dropped for each in public if each.played.dropped}
        advice = tuple(Advice(kind=_DROPPED, message=_IS_DROPPED, source=place) for place in places.values())
        return Observations(comparisons=tuple(comparisons), advice=advice)

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
        """Trace the operations that went wrong, to find the lines behind wrong states and replies."""
        look = partial(find_lines, work, program, observed, unplaced, driver=self.driver)
        return optional.run(OptionalStage.LINES, look, otherwise=observed)
