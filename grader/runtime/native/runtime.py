"""The runtime of C submissions: gcc builds them, the harness plays cases on them, Valgrind looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grader.core.case import Case
from grader.core.optional_stages import OptionalStage, OptionalStages
from grader.runtime.comparison import Comparison
from grader.runtime.confirm import run_confirmed
from grader.runtime.native.advice import look_for_advice
from grader.runtime.native.compile.build import build
from grader.runtime.native.compile.instrumented import build_sanitized, build_with_lines
from grader.runtime.native.compile.known_good import known_good_program
from grader.runtime.native.compile.project import CProject
from grader.runtime.native.driver import Driver
from grader.runtime.native.leaks import confirm_lost, find_lost
from grader.runtime.native.lines import find_lines
from grader.runtime.native.native_played import name_lines
from grader.runtime.native.needed_tools import ADDR2LINE, GCC, OBJCOPY, STARTED, UNCHECKED, VALGRIND
from grader.runtime.native.replay import replay
from grader.runtime.native.symbolize import source_lines
from grader.runtime.native.valgrind.memcheck import MOST_PROCESSES, memcheck
from grader.runtime.native.valgrind.pinpoint import advice, cases_with_unset, cases_without_line, completed
from grader.runtime.observation import Played, Replayed
from grader.runtime.options import GradingOptions
from grader.runtime.program import Built, Program
from grader.runtime.protocol import Advised, Observations, Suspect
from grader.runtime.source_lines import Lines
from grader.runtime.visibility import by_visibility
from grader.system import sandbox
from grader.system.sandbox import Workspace
from grader.system.tools import NeededTool

__all__ = ["NativeRuntime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRuntime:
    """A lab's submissions in C; see `grader.runtime.protocol.Runtime`."""

    project: CProject
    driver: Driver

    @property
    def source_name(self) -> str:
        """The file that students submit."""
        return self.project.source_name

    @property
    def language(self) -> str:
        """The language's short name."""
        return "c"

    @property
    def packages(self) -> tuple[str, ...]:
        """What is installed for it."""
        return ("binutils", "valgrind", "libc6-dbg")

    @property
    def programs(self) -> tuple[str, ...]:
        """The compiler, what it starts, and the instruments."""
        return STARTED

    @property
    def options(self) -> frozenset[str]:
        """All of them."""
        return frozenset({"memory_checker", "advise", "allowed"})

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """The compiler and its neighbours; Valgrind where it is wanted."""
        return (GCC, OBJCOPY, ADDR2LINE, *([VALGRIND] if options.memory_checker else []))

    def unchecked(self, options: GradingOptions) -> str:
        """What only Valgrind would see."""
        return "" if options.memory_checker else UNCHECKED

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
        """Compile and link with the handout's flags; `beside` are headers."""
        return build(
            self.project, work, source, own_headers=beside, relaxed=relaxed, optional=optional, allowed=allowed
        )

    def known_good(self, work: Workspace) -> Program:
        """The program of a submission without mistakes that does nothing: it shows what this machine can do."""
        return known_good_program(self.project, work)

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Run all cases natively."""
        run = partial(replay, cases=cases, driver=self.driver)
        replayed = run_confirmed(work, program, run, known_good=self.known_good)
        name = partial(name_lines, replayed.played, partial(source_lines, work, program))
        optional.run(OptionalStage.LINES, name, otherwise=None)
        return replayed

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
        """Find where memory was lost, run Valgrind, and look for lines that are still unknown."""
        lost = partial(find_lost, work, program, comparisons, self.driver)
        found, seconds = optional.run(OptionalStage.LOST_MEMORY, lost, otherwise=(tuple(comparisons), 0.0))
        observed = Observations(comparisons=found, spent={"find lost": seconds})
        sound = [i for i, one in enumerate(found) if one.played.complete or one.played.misfit]
        if sound and options.memory_checker:
            observed = self._checked(work, program, observed, sound, building=building, optional=optional)
        pinpoint = partial(self._pinpointed, work, program, observed, suspect, building=building, optional=optional)
        observed = optional.run(OptionalStage.LINES, pinpoint, otherwise=observed)
        with_lines = partial(self._with_lines, work, source, observed, suspect)
        return optional.run(OptionalStage.LINES, with_lines, otherwise=observed)

    def _checked(
        self,
        work: Workspace,
        program: Program,
        observed: Observations,
        sound: Sequence[int],
        *,
        building: float,
        optional: OptionalStages,
    ) -> Observations:
        """Run Valgrind on the cases that neither crashed nor hung natively."""
        comparisons = observed.comparisons
        run = partial(
            memcheck,
            cases=[one.case for one in comparisons],
            numbers=sound,
            natively={i: comparisons[i].played.cpu_seconds for i in sound},
            building=building,
            driver=self.driver,
            allowed={i: comparisons[i].allowed for i in sound},
            steps={i: comparisons[i].played.steps for i in sound},
            optional=optional,
        )
        checked = run_confirmed(work, program, run, known_good=self.known_good)
        advised = optional.run(OptionalStage.ADVICE, lambda: tuple(advice(comparisons, checked)), otherwise=())
        return replace(
            observed,
            comparisons=confirm_lost(comparisons, checked),
            checked=checked,
            advice=advised,
            spent={**observed.spent, "memcheck": checked.cpu_seconds},
        )

    def _pinpointed(
        self,
        work: Workspace,
        program: Program,
        observed: Observations,
        suspect: Suspect,
        *,
        building: float,
        optional: OptionalStages,
    ) -> Observations:
        """Run Valgrind once more, only where something is wrong and its line is still unknown."""
        comparisons, checked = observed.comparisons, observed.checked
        if checked is None or checked.processes >= MOST_PROCESSES:
            return observed
        unset = cases_with_unset(checked)
        if not unset and not cases_without_line(comparisons, checked, None):
            return observed
        without_line = cases_without_line(comparisons, checked, suspect(observed).shown)
        cases = [one.case for one in comparisons]
        chosen = by_visibility(cases, [*without_line, *(number for number in unset if number not in without_line)])[0]
        more = memcheck(
            work,
            program,
            cases,
            chosen,
            building=building,
            driver=self.driver,
            allowed={number: comparisons[number].allowed for number in without_line},
            natively={number: comparisons[number].played.cpu_seconds for number in chosen},
            strict=True,
            origins=bool(unset),
            most_processes=1,
            optional=optional,
        )
        checked = completed(checked, more)
        return replace(observed, checked=checked, spent={**observed.spent, "memcheck": checked.cpu_seconds})

    def _with_lines(self, work: Workspace, source: bytes, observed: Observations, suspect: Suspect) -> Observations:
        """Build the file once more, to report its lines, where something is wrong and has no line yet."""
        suspicions = suspect(observed).suspicions
        if not suspicions:
            return observed
        # a workspace of its own, because what ran in the other one may have left something there
        with sandbox.workspace(work.budget, tools=work.tools) as place:
            build_it = partial(build_with_lines, self.project, source=source)
            named, seconds = find_lines(place, suspicions, driver=self.driver, build=build_it, source=source)
        return replace(observed, named=named, spent={**observed.spent, "find lines": seconds})

    def source_lines(self, work: Workspace, program: Program, stacks: Iterable[tuple[int, ...]]) -> Lines:
        """The lines by the program's debug information."""
        return source_lines(work, program, stacks)

    def advise(
        self,
        work: Workspace,
        program: Program,
        *,
        source: bytes,
        comparisons: Sequence[Comparison],
        judge: Callable[[Played], Comparison],
    ) -> Advised:
        """Look for undefined behaviour, for allocations that fail unnoticed, and for needless ones."""
        # a workspace of its own, because what ran in the other one may have left something there
        with sandbox.workspace(work.budget, tools=work.tools) as place:
            build_it = partial(build_sanitized, self.project, source=source)
            return look_for_advice(place, self.driver, build_it, program=program, comparisons=comparisons, judge=judge)
