"""The runtime of C submissions: gcc builds them, the harness plays cases on them, Valgrind checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from grader.core.case import Case
from grader.core.closure import Closure
from grader.core.errors import OptionalStage, OptionalStages
from grader.core.judgement import Evidence, Symptom
from grader.core.verdict import Tool
from grader.runtime.native.compile.build import build, build_sanitized, build_with_lines
from grader.runtime.native.compile.harness_objects import STOCK, harness_objects, trial
from grader.runtime.native.compile.toolchain import GCC, OBJCOPY, known_good_program
from grader.runtime.native.native_played import name_lines, native_played
from grader.runtime.native.project import CProject, Driver, NativeProgram, native_program
from grader.runtime.native.replay import replay, walk
from grader.runtime.native.symbolize import Lines, source_lines
from grader.runtime.native.symptoms import (
    HeapUse,
    confirm_lost,
    find_lost,
    given_up,
    heap_use,
    origins,
    stacks_of,
    symptoms,
)
from grader.runtime.native.valgrind.memcheck import MOST_RUNS, completed, memcheck
from grader.runtime.native.valgrind.memory_faults import (
    Allowed,
    Checked,
    advice,
    allowed_spans,
    cases_with_unset,
    cases_without_line,
)
from grader.runtime.protocol import (
    Advised,
    Built,
    Comparison,
    GradingOptions,
    Observations,
    Played,
    Program,
    Replayed,
    Unplaced,
    Walked,
)
from grader.runtime.runs import by_visibility, measured_once, run_confirmed, timely
from grader.system import resources, sandbox
from grader.system.budget import TIMING_PACE, Budget, pace_of
from grader.system.resources import NeededTool
from grader.system.sandbox import Workspace

ADDR2LINE = NeededTool(name="addr2line", packages="binutils", purpose="finds source lines of crashes and leaks")
VALGRIND = NeededTool(
    name="valgrind",
    title="Valgrind",
    packages="valgrind libc6-dbg",
    purpose="looks for memory errors and leaks (or --without-memory-checker)",
    makes=Tool.MEMORY_CHECKER,
    instead="Or grade without it, by the grader's own instruments only: --without-memory-checker",
)
_USUAL_SECONDS, _USUAL_CHECK, _USUAL_CHECK_WITH_LIBC = 0.09, 0.03, 0.35
"""CPU seconds of a usual machine: to build and play a known-good program, and in addition to run it under Valgrind in
the lane `freestanding`, or in another lane. They are 1.5 times what a server of 2024 needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeObservations(Observations):
    """What was observed of a C program, and the reports from which its symptoms are made."""

    uses: Sequence[HeapUse]
    """For each case, what happened to its allocations."""
    lines: Lines = field(default_factory=dict)
    """The lines on the stacks that the harness reported."""
    checked: Checked | None = None
    """What Valgrind reported; None if Valgrind was not run."""
    allowed: Allowed = field(default_factory=dict)
    """The contracts of the cases that Valgrind ran."""

    def completed(self) -> NativeObservations:
        """Return these observations with what follows from the reports so far: symptoms, origins and coverage."""
        checked = self.checked
        return replace(
            self,
            symptoms=symptoms(self.comparisons, self.uses, self.lines, checked),
            origins=origins(self.comparisons, self.uses, self.lines, checked),
            searched={**self.searched, **given_up(self.comparisons, self.lines)},
            unseen=checked.unseen if checked is not None else frozenset(),
            coverage=checked.coverage if checked is not None else None,
        )

    def tells_more(self, than: NativeObservations, case: int, cause: Evidence) -> bool:
        """Return whether these observations have a line for the wrong value of this operation, and `than` has none."""
        place = case, cause.operation
        tags = self.origins.get(place, {}).keys() - than.origins.get(place, {}).keys()
        if not tags or isinstance(cause, Symptom):
            return False
        return any(tags & difference.tags for difference in self.comparisons[case].wrong[cause.operation].differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRuntime:
    """A lab's submissions in C; see `grader.runtime.protocol.Runtime`."""

    project: CProject
    driver: Driver

    language: ClassVar = "c"
    packages: ClassVar = ("binutils", "valgrind", "libc6-dbg")
    programs: ClassVar = ("gcc", "as", "ld", "ld.gold", "objcopy", "objdump", "addr2line", "valgrind")
    options: ClassVar = frozenset({"memory_checker", "advise", "allowed", "stock"})
    plays_generated: ClassVar = False

    @property
    def source_name(self) -> str:
        """The file that students submit."""
        return self.project.source_name

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """Return the compiler and binutils, and Valgrind if these options use it."""
        return (GCC, OBJCOPY, ADDR2LINE, *([VALGRIND] if options.memory_checker else []))

    def unchecked(self, options: GradingOptions) -> str:
        """Return what only Valgrind checks, if these options do not use it."""
        if options.memory_checker:
            return ""
        return (
            "Valgrind did not run. Not checked: reads outside an allocation, use of freed memory, values used "
            "before they are set. Leaks and bad calls of free were counted all the same."
        )

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
        """Compile and link with the handout's flags; `beside` are headers."""
        run = partial(
            build,
            self.project,
            work,
            source,
            own_headers=beside,
            relaxed=relaxed,
            optional=optional,
            allowed=allowed,
            only=STOCK if stock else None,
        )
        return replace(timely(work, self, run), unwritten=self.project.unwritten(source))

    def pace(self) -> float:
        """Return the pace, which is measured once for each compilation of the harness and then cached."""
        prefix = harness_objects(self.project).prefix  # different for each compilation
        return measured_once(self.pace_now, prefix.encode())

    def pace_now(self) -> float:
        """Compile, link, play and check a known-good program, and return the pace; see `Runtime.pace_now`."""
        case, driver = trial(self.project)
        with sandbox.workspace(Budget(pace=TIMING_PACE), tools=self.programs) as work:
            program = self.known_good(work)
            replay(work, program, [case], driver=driver)
            seconds, usual = work.budget.paid, _USUAL_SECONDS
            if resources.version(VALGRIND.name):
                natively, optional = {0: 0.0}, OptionalStages()
                checked = memcheck(work, program, [case], [0], natively=natively, driver=driver, optional=optional)
                if not checked.refused:  # if Valgrind does not begin, its time says nothing
                    seconds = work.budget.paid
                    lanes = harness_objects(self.project).starts
                    usual += _USUAL_CHECK if "checked freestanding" in lanes else _USUAL_CHECK_WITH_LIBC
            return pace_of(seconds * work.budget.pace, usual)

    def known_good(self, work: Workspace) -> NativeProgram:
        """Return a known-good program: it has only stubs, and fails only if this machine does not work."""
        return known_good_program(self.project, work)

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Run all cases natively."""
        run = partial(replay, cases=cases, driver=self.driver)
        own = native_program(program)
        replayed = run_confirmed(work, own, run, runtime=self, known_good=self.known_good)
        name = partial(name_lines, replayed.played, partial(source_lines, work, own))
        optional.run(OptionalStage.LINES, name, otherwise=None)
        return replayed

    def play_variants(self, work: Workspace, programs: Sequence[Program], case: Case) -> Iterator[Played]:
        """Play the case on each of the programs."""
        for program in programs:
            yield replay(work, native_program(program), [case], driver=self.driver).played[0]

    def walk(self, work: Workspace, program: Program, closure: Closure) -> Walked:
        """Walk through the closure in one process, which keeps the memory of each state on the way."""
        return walk(work, native_program(program), closure, self.driver)

    def inspect(
        self,
        work: Workspace,
        program: Program,
        *,
        comparisons: Sequence[Comparison],
        options: GradingOptions,
        optional: OptionalStages,
    ) -> Observations:
        """Find where memory was lost, and run Valgrind on the cases that neither crashed nor hung natively."""
        own = native_program(program)
        lost = partial(find_lost, work, own, comparisons, self.driver)
        traced, seconds = optional.run(OptionalStage.LOST_MEMORY, lost, otherwise=({}, 0.0))
        uses = tuple(heap_use(comparison, traced.get(number)) for number, comparison in enumerate(comparisons))
        observed = NativeObservations(comparisons=tuple(comparisons), uses=uses, spent={"find lost": seconds})
        sound = [i for i, each in enumerate(comparisons) if each.played.complete or each.played.misfit]
        if sound and options.memory_checker:
            observed = self._checked(work, own, observed, sound, optional=optional)
        lines: Lines = optional.run(
            OptionalStage.LINES, lambda: source_lines(work, own, stacks_of(comparisons, observed.uses)), otherwise={}
        )
        return replace(observed, lines=lines).completed()

    def _checked(
        self,
        work: Workspace,
        program: NativeProgram,
        observed: NativeObservations,
        sound: Sequence[int],
        *,
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
            driver=self.driver,
            allowed=allowed,
            steps={i: played_case.steps for i, played_case in played.items()},
            optional=optional,
        )
        checked = run_confirmed(work, program, run, runtime=self, known_good=self.known_good)
        advised = optional.run(OptionalStage.ADVICE, lambda: tuple(advice(comparisons, checked, allowed)), otherwise=())
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
        order: Sequence[int],
        optional: OptionalStages,
        quick: bool = False,  # noqa: ARG002 - this runtime plays no other cases
    ) -> Observations:
        """Run Valgrind again, and a build that reports its lines, only if a line is still unknown."""
        assert isinstance(observed, NativeObservations)
        own = native_program(program)
        again = partial(self._checked_again, work, own, observed, order, optional=optional)
        more = optional.run(OptionalStage.LINES, again, otherwise=observed)
        unknown = [(case, cause) for case, cause in unplaced if (case, cause.operation) not in observed.searched]
        still = [(case, cause) for case, cause in unknown if not more.tells_more(observed, case, cause)]
        with_lines = partial(self._with_lines, work, source, more, still)
        return optional.run(OptionalStage.LINES, with_lines, otherwise=more)

    def _checked_again(
        self,
        work: Workspace,
        program: NativeProgram,
        observed: NativeObservations,
        order: Sequence[int],
        *,
        optional: OptionalStages,
    ) -> NativeObservations:
        comparisons, checked, allowed = observed.comparisons, observed.checked, observed.allowed
        if checked is None or checked.processes >= MOST_RUNS:
            return observed
        unset = cases_with_unset(checked)
        without_line = cases_without_line(comparisons, checked, allowed, order)
        if not unset and not without_line:
            return observed
        cases = [comparison.case for comparison in comparisons]
        numbers = by_visibility(cases, [*without_line, *(number for number in unset if number not in without_line)])[0]
        more = memcheck(
            work,
            program,
            cases,
            numbers,
            driver=self.driver,
            allowed={number: allowed[number] for number in without_line},
            natively={number: comparisons[number].played.cpu_seconds for number in numbers},
            strict=True,
            origins=bool(unset),
            optional=optional,
        )
        checked = completed(checked, more)
        spent = {**observed.spent, "memcheck": checked.cpu_seconds}
        return replace(observed, checked=checked, spent=spent).completed()

    def _with_lines(
        self, work: Workspace, source: bytes, observed: NativeObservations, unplaced: Sequence[Unplaced]
    ) -> NativeObservations:
        """Build the file once more, to report its lines, if something is wrong and has no line yet."""
        if not unplaced:
            return observed
        from grader.runtime.native.lines import find_lines  # noqa: PLC0415 - a right program does not need it

        # a new workspace, because programs that ran in `work` may have left files there
        with sandbox.workspace(work.budget, tools=work.tools) as place:
            build_it = partial(build_with_lines, self.project, source=source)
            found, seconds = find_lines(
                place, observed.comparisons, unplaced, driver=self.driver, build=build_it, source=source
            )
        searched, spent = {**found, **observed.searched}, {**observed.spent, "find lines": seconds}
        return replace(observed, searched=searched, spent=spent)

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
        from grader.runtime.native.advice import look_for_advice  # noqa: PLC0415 - few gradings advise

        # a new workspace, because programs that ran in `work` may have left files there
        with sandbox.workspace(work.budget, tools=work.tools) as place:
            build_it = partial(build_sanitized, self.project, source=source)
            own = native_program(program)
            return look_for_advice(place, self.driver, build_it, program=own, comparisons=comparisons, judge=judge)
