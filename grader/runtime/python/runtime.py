"""The runtime of Python submissions: a module is executed call by call, by the lab's driver.

Before it plays, a submission is checked: does it compile, and define what is demanded? The text is compiled, and then
executed once, in processes of the sandbox. What fails there would fail in every case; it is reported once, with its
line. A missing class or function costs what is judged by calling it, and the points for being complete: an unfinished
file can be imported and graded. A file that defines none of the demanded names does not belong to this assignment.
"""
# ruff: noqa: ARG002 - the protocol has arguments that Python does not need

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from grader.core.case import Case
from grader.core.errors import GraderError, OptionalStage, OptionalStages, TooBusy
from grader.core.verdict import NOT_IMPORTED, Advice, Finding, SourceLine, Tool, Visibility
from grader.runtime.protocol import (
    Built,
    Comparison,
    GradingOptions,
    Observations,
    Played,
    Program,
    Replayed,
    Runtime,
    Unplaced,
    build_finding,
)
from grader.runtime.python import process
from grader.runtime.python.driver import PythonDriver
from grader.runtime.python.lines import find_lines
from grader.runtime.python.play import Derive, play
from grader.runtime.python.process import PythonProgram, decoded, ending, frames, run, unexplained
from grader.runtime.runs import measured_once, run_confirmed
from grader.system import sandbox
from grader.system.budget import TIMING_PACE, Budget, pace_of
from grader.system.resources import NeededTool
from grader.system.sandbox import Workspace

_KNOWN_GOOD = b"pass\n"
"""A module without definitions. If its cases end with an error that the harness explains, the harness works here."""
_IS_DROPPED = "what is written to this file is dropped when it is graded"
_USUAL_SECONDS = 0.035
"""CPU seconds that a usual machine takes to check a known-good module: 1.5 times those of a server of 2024."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRuntime(Runtime):
    """A lab's submissions in Python; see `grader.runtime.protocol.Runtime`."""

    driver: PythonDriver
    derive: Derive | None = None
    """Makes the records to judge, from those that a program sent; None if the sent records are judged."""

    language: ClassVar = "python"
    plays_generated: ClassVar = True

    @property
    def source_name(self) -> str:
        """The file that students submit."""
        return self.driver.file

    @property
    def programs(self) -> tuple[str, ...]:
        """The interpreter, as the only program."""
        return (process.interpreter(),)

    def tools(self, options: GradingOptions) -> tuple[NeededTool, ...]:
        """Return the interpreter. If none works, return the grader's own: a grading then says why it does not work."""
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
        own = process.PythonProgram(content=source, source_name=self.source_name)
        run = partial(check, driver=self.driver)
        return run_confirmed(work, own, run, runtime=self, known_good=self.known_good)

    def pace(self) -> float:
        """Return the pace that was measured when this interpreter was first used."""
        return measured_once(self.pace_now, process.interpreter().encode(), sys.version.encode())

    def pace_now(self) -> float:
        """Check a known-good module, and return the pace; see `Runtime.pace_now`."""
        with sandbox.workspace(Budget(pace=TIMING_PACE), tools=self.programs) as work:
            check(work, self.known_good(work), self.driver)
            return pace_of(work.budget.paid * work.budget.pace, _USUAL_SECONDS)

    def play(self, work: Workspace, program: Program, cases: Sequence[Case], *, optional: OptionalStages) -> Replayed:
        """Play all cases, each in a process of its own."""
        run = partial(play, cases=cases, driver=self.driver, derive=self.derive)
        own = process.python_program(program)
        return run_confirmed(work, own, run, runtime=self, known_good=self.known_good)

    def play_variants(self, work: Workspace, programs: Sequence[Program], case: Case) -> Iterator[Played]:
        """Play the case on each of the programs, in one harness."""
        variants = [program.content for program in programs]
        cases, own = [case] * len(programs), process.python_program(programs[0])
        yield from play(work, own, cases, driver=self.driver, derive=self.derive, variants=variants).played

    def known_good(self, work: Workspace) -> process.PythonProgram:
        """Return a module without definitions: the harness reports why each case ends, unless the grader is broken."""
        return process.PythonProgram(content=_KNOWN_GOOD, source_name=self.source_name)

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
        advice = tuple(Advice(kind="dropped", message=_IS_DROPPED, source=place) for place in places.values())
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
        quick: bool = False,
    ) -> Observations:
        """Trace the operations that went wrong, and others, to find the lines that caused wrong states and replies."""
        own = process.python_program(program)
        look = partial(find_lines, work, own, observed, unplaced, driver=self.driver, compares=not quick)
        return optional.run(OptionalStage.LINES, look, otherwise=observed)


_COMPILED, _EXECUTED = 0, 1
"""The harness's numbers of the two parts of a check."""
_SECONDS = 5.0
_PROCESS = 0.01
"""The seconds of a process that executes an empty module."""
_SLOW = 0.02
"""An import that takes more seconds counts as slow: some 150 cases would take 3 seconds more."""
_SLOWEST = 2.0
"""The seconds after which an import is ended, and the most by which one import extends the time for playing cases."""


def check(work: Workspace, program: PythonProgram, driver: PythonDriver) -> Built:
    """Compile and execute a submission. `Built.program` is None if the text or its execution fails."""
    file = driver.file
    done = run(work, program, driver, (), check=True, total=_SECONDS)
    if done.timed_out and not done.silent:
        raise TooBusy("the machine is too busy: a module was not checked in minutes, although it computed little")
    seen = list(frames(done.channels[0]))
    looked = next((decoded(frame.body) for frame in seen if frame[:2] == ("C", _COMPILED)), None)
    findings = list(_of_the_text(looked, file))
    taken = 0.0
    missing: tuple[str, ...] = ()
    late = done.slow or done.silent or looked is None
    cut_off = "" if done.slow or done.silent or done.large or looked is not None else "was not seen to its end"
    if not findings:
        executed = {frame.kind: decoded(frame.body) for frame in seen if frame.case == _EXECUTED}
        if done.slow or done.silent or done.large:
            executed["E"] = {"large": True} if done.large else {"hang": True}
        findings = list(_of_the_module(executed, file, driver.demanded))
        cut_off = unexplained(executed) if "D" not in executed else ""
        missing = _missing(executed, driver.demanded)
        ended = executed.get("E", {})
        late |= any(ended.get(reason) for reason in ("hang", "no_time"))
        own = ended.get("own")  # seconds that the child computed or slept
        taken = own / work.budget.pace if isinstance(own, float) else 0.0
    modules, empty = (_names(looked or {}, key) for key in ("imports", "empty"))
    importing = max(0.0, min(taken, _SLOWEST) - _PROCESS)
    program = replace(program, modules=modules, begins_slowly=importing > _SLOW, import_seconds=importing)
    return Built(
        program=None if findings else program,
        missing=missing,
        unwritten=driver.calling(empty),
        findings=tuple(findings),
        stopped=bool(findings),  # nothing can be relaxed
        late=late,
        unexplained_end=cut_off,
        cpu_seconds=done.cpu_seconds,
    )


def _names(looked: Mapping[str, object], key: str) -> tuple[str, ...]:
    names = looked.get(key)
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _of_the_text(looked: Mapping[str, object] | None, file: str) -> Iterator[Finding]:
    if looked is None:
        yield build_finding(
            NOT_IMPORTED, f"{file} cannot be compiled: the compiler needs too much time or memory for it"
        )
        return
    problems = looked.get("problems")
    for line, column, message in problems if isinstance(problems, list) else ():
        place = SourceLine(file=file, line=line, column=column)
        yield build_finding(NOT_IMPORTED, message, source=(place,))


def _of_the_module(executed: Mapping[str, dict[str, object]], file: str, demanded: Sequence[str]) -> Iterator[Finding]:
    """Yield findings on a module that was executed; `executed` has the harness's reports by kind."""
    if "D" not in executed:
        end = ending(file, file, executed)
        yield build_finding(NOT_IMPORTED, end.sentence, source=end.lines[::-1])
        return
    if len(missing := _missing(executed, demanded)) == len(demanded):
        for name in missing:
            yield build_finding(NOT_IMPORTED, f"{file} defines no {name}")


def _missing(executed: Mapping[str, dict[str, object]], demanded: Sequence[str]) -> tuple[str, ...]:
    """Return the demanded names that a module does not define."""
    names = executed.get("C", {}).get("missing")
    return tuple(name for name in demanded if name in names) if isinstance(names, list) else ()
