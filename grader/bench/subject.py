"""What is measured: a submission, the lab's cases, and two yardsticks.

G is the CPU time of the handout's own `gcc -c` of the submission, V that of stock Valgrind on an empty program.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader import pipeline
from grader.assignment import case_files
from grader.assignment.lab import Lab
from grader.assignment.source import collect
from grader.core.case import Case
from grader.core.closure import Closure
from grader.core.errors import DriverError, UsageError
from grader.core.optional_stages import OptionalStages
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.judge.compare import compare
from grader.labs import open_lab
from grader.runtime.comparison import Comparison
from grader.runtime.native.project import FLAGS, Driver, NativeProgram, native_program
from grader.runtime.native.replay import replay
from grader.runtime.native.runtime import NativeRuntime
from grader.runtime.native.valgrind.memcheck import memcheck
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.runtime.observation import Replayed
from grader.search.beyond import load_closure
from grader.system import process, sandbox
from grader.system.budget import Budget
from grader.system.process import Patience
from grader.system.sandbox import Workspace

ROOT = Path(__file__).parents[2]
_NATIVELY = 0.001  # CPU seconds of a case, from which its time limit under Valgrind follows
_LIMITS = Patience(wall_seconds=300)
_RUN = """import sys
sys.argv = ["grade", "run", sys.argv[1], "--case", sys.argv[2]]
from grader.cli import main
try:
    main()
except SystemExit as end:
    if end.code not in (0, 1):
        raise"""
_IMPORT = """import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):  # some names are made up by other modules
        importlib.import_module(name)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A submission that builds, with a folder for the yardsticks' files."""

    path: Path
    lab: Lab
    cases: tuple[Case, ...]
    source: bytes
    program: NativeProgram
    folder: Path

    @property
    def driver(self) -> Driver:
        """The driver of the lab, which is one of C submissions."""
        assert isinstance(self.lab.runtime, NativeRuntime)
        return self.lab.runtime.driver

    def compile_strictly(self) -> None:
        """Do the work of G: the handout's `gcc -c` of the submission."""
        command(["gcc", *FLAGS, "-c", self.lab.source_name, "-o", "bench.o"], self.folder)

    def empty_under_valgrind(self) -> None:
        """Do the work of V: stock Valgrind on an empty program."""
        command(["valgrind", "-q", "./empty"], self.folder)

    def grade(self, cases: Sequence[Case] | None = None) -> Record:
        """Grade the submission in this process, as a grader that keeps running does."""
        selected_cases = self.cases if cases is None else cases
        return pipeline.grade(self.path, self.lab, selected_cases)

    def modules(self, case: Case) -> list[str]:
        """Return all modules, except Python's own, that such a `grade run` has imported at its end."""
        names = _python(f"{_RUN}\nprint(*sys.modules)", str(self.path.absolute()), case.name).splitlines()[-1].split()
        return [name for name in names if name.partition(".")[0] not in (*sys.stdlib_module_names, "__main__")]

    def start_and_import(self, modules: Sequence[str]) -> None:
        """Run an interpreter that imports these modules and ends.

        They come from bytecode, as in all runs but a user's first: the children write it, whatever this process's
        environment says (PYTHONDONTWRITEBYTECODE), and `modules` was called before.
        """
        _python(_IMPORT, *modules)

    def replay(self, work: Workspace, cases: Sequence[Case], program: NativeProgram | None = None) -> Replayed:
        """Run the native pass over these cases."""
        tested = program or self.program
        fresh = replace(work, budget=Budget())  # each measurement gets the whole time of a submission
        return replay(fresh, tested, cases, driver=self.driver)

    def walk(self) -> None:
        """Walk through the closure of the small engine."""
        closure = load_closure(self.lab)
        assert isinstance(closure, Closure)
        with sandbox.workspace() as work:
            walked = self.lab.runtime.walk(work, self.program, closure)
        assert walked is not None
        if walked.sums != closure.sums:
            raise DriverError("the submission does not agree in the closure of the small engine")

    def memcheck(self, work: Workspace, cases: Sequence[Case], program: NativeProgram | None = None) -> Checked:
        """Run the Valgrind pass over all of these cases."""
        numbers = range(len(cases))
        return memcheck(
            replace(work, budget=Budget()),
            program or self.program,
            cases,
            numbers,
            natively=dict.fromkeys(numbers, _NATIVELY),
            driver=self.driver,
            optional=OptionalStages(),
        )

    def compare(self, replayed: Replayed) -> list[Comparison]:
        """Compare the replayed cases with what the reference does."""
        return [compare(played, self.lab.model) for played in replayed.played]

    def samples(self, verdict: Verdict) -> list[Path]:
        """The labelled submissions with this verdict."""
        return sorted((ROOT / "submissions" / self.lab.name / verdict).iterdir())


def command(arguments: Sequence[str], folder: Path) -> None:
    """Run a program that has to succeed. Raises `UsageError` with its error output when it fails."""
    done = process.run(arguments, cwd=folder, limits=_LIMITS, environment={"PATH": os.environ["PATH"], "LC_ALL": "C"})
    if not done.succeeded:
        raise UsageError(f"{' '.join(arguments)}: {done.stderr.decode(errors='replace')}")


def _python(program: str, *arguments: str) -> str:
    done = process.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        limits=_LIMITS,
        environment={"PATH": os.environ["PATH"], **({"HOME": os.environ["HOME"]} if "HOME" in os.environ else {})},
    )
    if not done.succeeded:
        raise DriverError(f"python said: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode(errors="replace")


@contextlib.contextmanager
def prepared(path: Path, lab_name: str) -> Iterator[Subject]:
    """Build the submission and the files for the yardsticks. Raises `UsageError` when it does not build."""
    lab = open_lab(lab_name)
    source = collect(path, lab.source_name, rule="").content
    with tempfile.TemporaryDirectory(prefix="bench-") as name, sandbox.workspace() as work:
        folder = Path(name)
        built = lab.runtime.build(work, source, beside={}, optional=OptionalStages())
        if built.program is None:
            raise UsageError(f"{path}: {built.findings[0].message}; --submission takes one that builds")
        (folder / lab.source_name).write_bytes(source)
        for header in (ROOT / "grader" / "labs" / lab.name).glob("*.h"):
            (folder / header.name).write_bytes(header.read_bytes())
        (folder / "empty.c").write_text("int main(void) { return 0; }\n")
        command(["gcc", "empty.c", "-o", "empty"], folder)
        cases = tuple(case_files.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed))
        yield Subject(
            path=path, lab=lab, cases=cases, source=source, program=native_program(built.program), folder=folder
        )
