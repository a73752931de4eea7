"""What is measured: a submission, the lab's cases, two yardsticks, edits of a wrong sample, and a rival.

G is the CPU time of the handout's own `gcc -c` of the submission, V that of stock Valgrind on an empty program. After
an edit `grade watch` first waits until the editor has written its last byte. This wait takes 20 ms or more but no CPU
time, and is not measured.

The rival is a harness that starts a native and a Valgrind process for every case. It does the whole work on the same
submission and the same cases: it runs the cases, reads the records, and compares them with the reference. It starts
processes directly, without the grader's sandbox.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from grader import pipeline
from grader.assignment.case_files import load_folder, select_cases
from grader.assignment.lab import Lab
from grader.assignment.samples import program_of, samples_in
from grader.assignment.source import collect
from grader.core.case import Case
from grader.core.closure import Closure
from grader.core.errors import DriverError, OptionalStages, UsageError
from grader.core.record import Record
from grader.core.verdict import Verdict
from grader.judge.compare import compare
from grader.labs import open_lab
from grader.report import FORMATS
from grader.report.document import Document, View
from grader.report.start_here import first_look
from grader.runtime.native.project import FLAGS, Driver, NativeProgram, native_program
from grader.runtime.native.replay import replay
from grader.runtime.native.runtime import NativeRuntime
from grader.runtime.native.valgrind.memcheck import memcheck
from grader.runtime.native.valgrind.memory_faults import Checked
from grader.runtime.protocol import End, GradingOptions, Replayed
from grader.search.hunt import load_closure
from grader.system import process, sandbox
from grader.system.budget import Budget
from grader.system.process import Command, Completed
from grader.system.process_tree import Patience
from grader.system.sandbox import NO_VARIABLES, Limits, Workspace

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
    """A submission that can be built, and a folder for the yardsticks' files."""

    path: Path
    lab: Lab
    cases: tuple[Case, ...]
    source: bytes
    program: NativeProgram
    folder: Path

    @property
    def driver(self) -> Driver:
        """The driver of the lab, whose submissions must be in C."""
        assert isinstance(self.lab.runtime, NativeRuntime)
        return self.lab.runtime.driver

    def compile_strictly(self) -> None:
        """Do the work of G: the handout's `gcc -c` of the submission."""
        command(["gcc", *FLAGS, "-c", self.lab.source_name, "-o", "bench.o"], self.folder)

    def empty_under_valgrind(self) -> None:
        """Do the work of V: stock Valgrind on an empty program."""
        command(["valgrind", "-q", "./empty"], self.folder)

    def grade(self) -> Record:
        """Grade the submission in this process, as a long-running grader does."""
        return pipeline.grade(self.path, self.lab, self.cases)

    def modules(self, case: Case) -> list[str]:
        """Return all modules, except Python's own, that a `grade run` of this case has imported at its end."""
        names = _python(f"{_RUN}\nprint(*sys.modules)", str(self.path.absolute()), case.name).splitlines()[-1].split()
        return [name for name in names if name.partition(".")[0] not in (*sys.stdlib_module_names, "__main__")]

    def start_and_import(self, modules: Sequence[str]) -> None:
        """Run an interpreter that imports these modules and ends.

        The modules are loaded from bytecode, as in all runs but a user's first. Call the method `modules` before: its
        process writes the bytecode, even if this process has PYTHONDONTWRITEBYTECODE.
        """
        _python(_IMPORT, *modules)

    def replay(self, work: Workspace, cases: Sequence[Case], program: NativeProgram) -> Replayed:
        """Run the native pass over these cases."""
        fresh = replace(work, budget=Budget())  # each measurement gets the whole time of a submission
        return replay(fresh, program, cases, driver=self.driver)

    def walk(self) -> None:
        """Walk through the closure of the small engine. Raises `DriverError` if the submission differs from it."""
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

    def samples(self, verdict: Verdict) -> list[Path]:
        """Return the labelled submissions with this verdict."""
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


@contextmanager
def prepared(path: Path, lab_name: str) -> Iterator[Subject]:
    """Yield the submission, built, with the files for the yardsticks. Raises `UsageError` if the build fails."""
    lab = open_lab(lab_name)
    source = collect(path, lab.source_name, rule="").content
    with tempfile.TemporaryDirectory(prefix="bench-") as name, sandbox.workspace() as work:
        folder = Path(name)
        built = lab.runtime.build(work, source, beside={}, optional=OptionalStages())
        if built.program is None:
            raise UsageError(f"{path}: {built.findings[0].message}; --submission takes one that builds")
        (folder / lab.source_name).write_bytes(source)
        for header in lab.starter.values():
            if header.suffix == ".h":
                (folder / header.name).write_bytes(header.read_bytes())
        (folder / "empty.c").write_text("int main(void) { return 0; }\n")
        command(["gcc", "empty.c", "-o", "empty"], folder)
        cases = tuple(load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed))
        yield Subject(
            path=path, lab=lab, cases=cases, source=source, program=native_program(built.program), folder=folder
        )


_WITHOUT_TOOL = GradingOptions(memory_checker=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedSample:
    """A copy of a wrong labelled submission that is edited again and again; no two edits give the same content."""

    lab: Lab
    cases: tuple[Case, ...]
    file: Path
    content: bytes
    numbers: Iterator[int] = field(default_factory=count)
    seconds: list[float] = field(default_factory=list)
    """The wall seconds from each edit so far to its first result."""

    @classmethod
    def of(cls, lab: Lab, samples: Path, folder: Path) -> EditedSample:
        """Read the first sample with a wrong answer, and make a folder inside `folder` where `edit` writes it."""
        labelled = samples_in(samples / lab.name, lab.source_name)
        wrong = next(sample for sample in labelled if sample.parent.name == Verdict.WRONG_ANSWER)
        file = folder / lab.name / lab.source_name
        file.parent.mkdir()
        cases = select_cases(lab, seed=lab.rubric.seed).cases
        return cls(lab=lab, cases=cases, file=file, content=program_of(wrong, lab.source_name))

    def edit(self) -> None:
        """Save new content, grade it up to the first result, and make the page with this result."""
        comment = "\n/* {} */\n" if self.lab.runtime.language == "c" else "\n# {}\n"
        self.file.write_bytes(self.content + comment.format(next(self.numbers)).encode())
        started = time.monotonic()
        page = self._first_page()
        self.seconds.append(time.monotonic() - started)
        assert "Start here" in page, page

    def _first_page(self) -> Document:
        source = collect(self.file, self.lab.source_name, rule="")
        soon = pipeline.first_look(source, self.lab, self.cases, _WITHOUT_TOOL, budget=Budget())
        if soon is not None:
            return first_look(soon, View(), ["random traces"])
        return FORMATS["text"](pipeline.grade(self.file, self.lab, self.cases, _WITHOUT_TOOL, source=source), View())


_NEEDS_LIBC = (
    b"\n#include <stdlib.h>\nlong bench_needs_libc(const char *);\n"
    b"long bench_needs_libc(const char *text) { return strtol(text, NULL, 10); }\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFolder(Workspace):
    """A folder that runs programs directly: no separate user, no limit but wall time, no session, no clean-up."""

    def run(
        self,
        command: Sequence[str] | Command,
        *,
        limits: Limits,
        feeds: Sequence[bytes] = (),
        channels: int = 0,
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> Completed:
        """Run the program with the input that a sandbox would give it; files in memory replace the pipes."""
        with ExitStack() as stack:
            ends = []
            for content in [*feeds, *[b""] * channels]:
                ends.append(os.memfd_create("bench"))
                stack.callback(os.close, ends[-1])
                os.pwrite(ends[-1], content, 0)
            done = subprocess.run(
                command(ends) if callable(command) else command,
                cwd=self.folder,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=ends,
                timeout=limits.wall_seconds,
                check=False,
            )
            taken = tuple(os.pread(end, os.fstat(end).st_size, 0) for end in ends[len(feeds) :])
        return Completed(
            exit_code=done.returncode if done.returncode >= 0 else None,
            signal=-done.returncode if done.returncode < 0 else None,
            timed_out=False,
            cpu_seconds=0.0,
            stdout=done.stdout,
            stderr=done.stderr,
            channels=taken,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _InPlace(NativeProgram):
    """A program that is written into the folder only if it is not there yet, not again before every use."""

    def place(self, work: Workspace, *, checked: bool = False) -> str:
        name = "checked" if checked else "program"
        return name if (work.folder / name).exists() else super(_InPlace, self).place(work, checked=checked)


def plain(folder: Path, name: str) -> PlainFolder:
    """Make a new folder inside `folder`."""
    inner = folder / name
    inner.mkdir()
    return PlainFolder(folder=inner, user=None)


def dynamic(subject: Subject) -> NativeProgram:
    """Build the submission so that it uses the system's libc under Valgrind, as the handout links it."""
    with sandbox.workspace() as work:
        built = subject.lab.runtime.build(work, subject.source + _NEEDS_LIBC, beside={}, optional=OptionalStages())
    if built.program is None:
        raise UsageError(f"{subject.path}: {built.findings[0].message}")
    return native_program(built.program)


def naive(subject: Subject, work: Workspace, program: NativeProgram, cases: Sequence[Case]) -> int:
    """Run one native and one Valgrind process per case; return the number of cases with nothing wrong."""
    standing = _InPlace(content=program.content, checked=program.checked, source_name=program.source_name)
    return sum(_fine(subject, work, standing, case) for case in cases)


def _fine(subject: Subject, work: Workspace, program: NativeProgram, case: Case) -> bool:
    (played,) = subject.replay(work, [case], program).played
    comparison = compare(played, subject.lab.model)
    checked = subject.memcheck(work, [case], program)
    return comparison.end is End.REACHED and not comparison.wrong and not checked.counted and not checked.stopped
