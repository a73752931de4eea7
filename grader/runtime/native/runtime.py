"""The runtime of C submissions: gcc builds them, the harness plays cases on them, Valgrind looks at them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from grader.runtime.native.leaks import confirm_lost, find_lost, heap_use
from grader.runtime.native.lines import find_lines
from grader.runtime.native.native_observations import NativeObservations
from grader.runtime.native.native_played import name_lines, native_played
from grader.runtime.native.native_program import NativeProgram, native_program
from grader.runtime.native.needed_tools import ADDR2LINE, GCC, OBJCOPY, STARTED, UNCHECKED, VALGRIND
from grader.runtime.native.replay import replay
from grader.runtime.native.symbolize import Lines, source_lines
from grader.runtime.native.symptoms import stacks_of
from grader.runtime.native.valgrind.contract import allowed_spans
from grader.runtime.native.valgrind.memcheck import MOST_PROCESSES, memcheck
from grader.runtime.native.valgrind.pinpoint import advice, cases_with_unset, cases_without_line, completed
from grader.runtime.observation import Played, Replayed
from grader.runtime.options import GradingOptions
from grader.runtime.program import Built, Program
from grader.runtime.protocol import Advised, Observations, Unplaced
from grader.runtime.visibility import by_visibility
from grader.system import sandbox
from grader.system.resources import NeededTool
from grader.system.sandbox import Workspace


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

    def known_good(self, work: Workspace) -> NativeProgram:
        """The program of a submission without mistakes that does nothing: it shows what this machine can do."""
        return known_good_program(self.project, work)

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Run all cases natively."""
        run = partial(replay, cases=cases, driver=self.driver)
        own = native_program(program)
        replayed = run_confirmed(work, own, run, known_good=self.known_good)
        name = partial(name_lines, replayed.played, partial(source_lines, work, own))
        optional.run(OptionalStage.LINES, name, otherwise=None)
        return replayed

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
        """Find where memory was lost, and run Valgrind on the cases that neither crashed nor hung natively."""
        own = native_program(program)
        lost = partial(find_lost, work, own, comparisons, self.driver)
        traced, seconds = optional.run(OptionalStage.LOST_MEMORY, lost, otherwise=({}, 0.0))
        uses = tuple(heap_use(comparison, traced.get(number)) for number, comparison in enumerate(comparisons))
        observed = NativeObservations(comparisons=tuple(comparisons), uses=uses, spent={"find lost": seconds})
        sound = [
            i for i, comparison in enumerate(comparisons) if comparison.played.complete or comparison.played.misfit
        ]
        if sound and options.memory_checker:
            observed = self._checked(work, own, observed, sound, building=building, optional=optional)
        look_up = partial(self._looked_up, work, own, observed)
        lines = optional.run(OptionalStage.LINES, look_up, otherwise={})
        return replace(observed, lines=lines).completed()

    def _looked_up(self, work: Workspace, program: NativeProgram, observed: NativeObservations) -> Lines:
        return source_lines(work, program, stacks_of(observed.comparisons, observed.uses))

    def _checked(
        self,
        work: Workspace,
        program: NativeProgram,
        observed: NativeObservations,
        sound: Sequence[int],
        *,
        building: float,
        optional: OptionalStages,
    ) -> NativeObservations:
        """Run Valgrind on these cases."""
        comparisons = observed.comparisons
        played = {i: native_played(comparisons[i]) for i in sound}
        allowed = {i: allowed_spans(comparisons[i], self.driver.model) for i in sound}
        run = partial(
            memcheck,
            cases=[comparison.case for comparison in comparisons],
            numbers=sound,
            natively={i: played_case.cpu_seconds for i, played_case in played.items()},
            building=building,
            driver=self.driver,
            allowed=allowed,
            steps={i: played_case.steps for i, played_case in played.items()},
            optional=optional,
        )
        checked = run_confirmed(work, program, run, known_good=self.known_good)
        look = partial(advice, comparisons, checked, allowed)
        advised = optional.run(OptionalStage.ADVICE, lambda: tuple(look()), otherwise=())
        return replace(
            observed,
            uses=confirm_lost(comparisons, observed.uses, checked),
            checked=checked,
            allowed=allowed,
            advice=advised,
            spent={**observed.spent, "memcheck": checked.cpu_seconds},
        )

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
        """Run Valgrind and a build that reports its lines once more, only where a line is still unknown."""
        assert isinstance(observed, NativeObservations)
        own = native_program(program)
        again = partial(self._checked_again, work, own, observed, shown, building=building, optional=optional)
        more = optional.run(OptionalStage.LINES, again, otherwise=observed)
        still = [fault for fault in unplaced if not more.tells_more(observed, fault)]
        with_lines = partial(self._with_lines, work, source, more, still)
        return optional.run(OptionalStage.LINES, with_lines, otherwise=more)

    def _checked_again(
        self,
        work: Workspace,
        program: NativeProgram,
        observed: NativeObservations,
        shown: str | None,
        *,
        building: float,
        optional: OptionalStages,
    ) -> NativeObservations:
        comparisons, checked, allowed = observed.comparisons, observed.checked, observed.allowed
        if checked is None or checked.processes >= MOST_PROCESSES:
            return observed
        unset = cases_with_unset(checked)
        without_line = cases_without_line(comparisons, checked, allowed, shown)
        if not unset and not without_line:
            return observed
        cases = [comparison.case for comparison in comparisons]
        numbers = by_visibility(cases, [*without_line, *(number for number in unset if number not in without_line)])[0]
        more = memcheck(
            work,
            program,
            cases,
            numbers,
            building=building,
            driver=self.driver,
            allowed={number: allowed[number] for number in without_line},
            natively={number: comparisons[number].played.cpu_seconds for number in numbers},
            strict=True,
            origins=bool(unset),
            most_processes=1,
            optional=optional,
        )
        checked = completed(checked, more)
        spent = {**observed.spent, "memcheck": checked.cpu_seconds}
        return replace(observed, checked=checked, spent=spent).completed()

    def _with_lines(
        self, work: Workspace, source: bytes, observed: NativeObservations, unplaced: Sequence[Unplaced]
    ) -> NativeObservations:
        """Build the file once more, to report its lines, where something is wrong and has no line yet."""
        if not unplaced:
            return observed
        # a workspace of its own, because what ran in the other one may have left something there
        with sandbox.workspace(work.budget, tools=work.tools) as place:
            build_it = partial(build_with_lines, self.project, source=source)
            named, seconds = find_lines(place, unplaced, driver=self.driver, build=build_it, source=source)
        return replace(observed, named=named, spent={**observed.spent, "find lines": seconds})

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
            own = native_program(program)
            return look_for_advice(place, self.driver, build_it, program=own, comparisons=comparisons, judge=judge)
