"""A test bench for failing cases as C programs: samples are shared libraries, so that a program runs with many."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from zlib import crc32

from grader.assignment import case_files
from grader.assignment.lab import Mistake
from grader.assignment.samples import program_of, samples_in
from grader.core.case import Case
from grader.core.record import Record
from grader.core.verdict import Audience, Cause, Verdict
from grader.labs import open_lab
from grader.runtime.native.project import FLAGS
from grader.system.process import Completed, run
from grader.system.process_tree import Patience
from grader.tests.support.command import SAMPLES
from grader.tests.support.covering import mistake_of
from grader.tests.support.graded import all_graded
from reference.paged_kv.constants import HEADER

_SOURCE = "llm_memory.c"
_PEACEFUL = [sample for sample in samples_in(SAMPLES, _SOURCE) if not sample.name.startswith("hostile_")]
"""Samples that are not hostile: the programs here run without a sandbox."""
ACCEPTED = [sample / _SOURCE for sample in _PEACEFUL if sample.parent.name == Verdict.ACCEPTED]
"""The files of accepted samples, which are whole."""
_NOT_PLAYED = (Verdict.ACCEPTED, Verdict.COMPILE_ERROR, Verdict.REJECTED)
WRONG = [sample for sample in _PEACEFUL if sample.parent.name not in _NOT_PLAYED]
"""The folders of samples with a failing case."""
VALGRIND = (
    *("valgrind", "-q", "--error-exitcode=9", "--leak-check=full"),
    *("--show-leak-kinds=all", "--errors-for-leak-kinds=all"),
)
_FOR_CHECKER = ("create_compares_unset_entry",)
"""Samples that use a value that was never set: in one of the cases shown nothing comes of it, whatever the value."""

_TABLES_IN_VARIABLES = ("first_tables_from_a_static_array",)
"""Samples that are linked into each program: it accepts tables in variables of its own, not in those of a library."""

SHARERS = 5
"""So many programs share the accepted samples between them."""


@cache
def cases() -> dict[str, Case]:
    """Return all cases by name."""
    lab = open_lab("paged_kv")
    return {case.name: case for case in case_files.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed)}


def program_text(case: Case, operation: int | None = None) -> str:
    """Return the case as a C program, up to an operation (counted from 0) or to its end."""
    last = len(case.trace.operations) - 1
    return open_lab("paged_kv").reproduce(case, last if operation is None else operation)


def said(failed: Completed) -> str:
    """Return the last lines of its output, after the student's own: where it failed, the handout, what was found."""
    text = failed.stderr.decode(errors="replace")
    found = re.search(r"^repro\.c: .+\n  the handout: .+\n(  .+\n){1,10}\Z", text, re.MULTILINE)
    assert found is not None, failed
    return found[0]


class Bench:
    """A folder for compiling, and the samples that were compiled there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.libraries: dict[Path, Path] = {}
        self.programs: dict[str, Path] = {}
        self.peaceful: set[str] = set()
        """Programs that no accepted sample fails."""

    @cached_property
    def first(self) -> Path:
        """The library that programs are linked with; another one may replace it when they run."""
        return self.library(ACCEPTED[0])

    def written(self, sample: Path) -> Path:
        """Return a file with the program of a sample, in a folder with the sample's name."""
        file = self.folder / "samples" / sample.name / _SOURCE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(program_of(sample, _SOURCE))
        return file

    def library(self, source: Path) -> Path:
        """Compile the sample as a library, once, and return the folder with it."""
        if source not in self.libraries:
            place = self.libraries[source] = self.folder / f"library{len(self.libraries)}"
            place.mkdir()
            output = place / "libllm_memory.so"
            self.compile("-fPIC", "-shared", f"-I{HEADER.parent}", str(source), "-o", str(output))
        return self.libraries[source]

    def beside(self, text: str, source: Path) -> Completed:
        """Run a program beside a sample."""
        if source.parent.name in _TABLES_IN_VARIABLES:
            return self.run(str(self._program(text, "whole", str(source))))
        if text not in self.programs:
            name = f"shared{len(self.programs)}"
            self.programs[text] = self._program(text, name, f"-L{self.first}", "-lllm_memory")
        return self.run(str(self.programs[text]), library=self.library(source))

    def _program(self, text: str, name: str, *besides: str) -> Path:
        """Compile a program; without optimisation, which would take three times as long."""
        (self.folder / "repro.c").write_text(text, encoding="utf-8")
        self.compile("-O0", f"-I{HEADER.parent}", "repro.c", *besides, "-o", name)
        return self.folder / name

    def linked(self, text: str, source: Path) -> Path:
        """Compile a program together with a student's file, with the handout's command."""
        (self.folder / "repro.c").write_text(text, encoding="utf-8")
        (self.folder / "llm_memory.c").write_bytes(source.read_bytes())
        (self.folder / "llm_memory.h").write_bytes(HEADER.read_bytes())
        command = open_lab("paged_kv").reproduce_command.removesuffix(" && ./repro").split()
        assert command[1 : len(FLAGS) + 1] == list(FLAGS)
        self.compile(*command[len(FLAGS) + 1 :])
        return self.folder / "repro"

    def compile(self, *arguments: str) -> None:
        """Compile with the strict flags; there must be no warning."""
        done = self.run("gcc", *FLAGS, *arguments)
        assert done.succeeded, done.stderr.decode()

    def run(self, *command: str, library: Path | None = None) -> Completed:
        """Run a command in the folder, with a sample's library if one is given."""
        environment = {"PATH": "/usr/bin:/bin"}
        if library is not None:
            environment["LD_LIBRARY_PATH"] = str(library)
        limits = Patience(wall_seconds=30)
        return run(command, cwd=self.folder, limits=limits, environment=environment)


@dataclass(frozen=True, slots=True)
class ShownProgram:
    """The case that a report shows for a cause, up to its first bad operation, counted from 0."""

    case: str
    operation: int


def fails_by_itself(bench: Bench, folder: Path, programs: Iterable[ShownProgram]) -> None:
    """Assert that these programs fail beside this sample, and beside no accepted sample.

    Of every eighth sample the first program is made by the handout's own command, which optimises and so takes three
    times as long; all others run beside the sample as a library.
    """
    sample, source = folder.name, bench.written(folder)
    eighth = crc32(sample.encode()) % 8 == 0
    for number, shown in enumerate(programs):
        case = cases()[shown.case]
        text = program_text(case, shown.operation)
        by_handout = (eighth and number == 0) or sample in _FOR_CHECKER
        failed = bench.run(str(bench.linked(text, source))) if by_handout else bench.beside(text, source)
        if failed.succeeded and sample in _FOR_CHECKER:
            assert bench.run(*VALGRIND, "./repro").exit_code == 9, sample
            continue

        assert (sample, shown, failed.exit_code) == (sample, shown, 1), failed
        assert any(str(step) in said(failed) for step in case.trace.operations), (sample, failed)
        _assert_peaceful(bench, text)


def silent(bench: Bench, case: Case, samples: Iterable[Path]) -> None:
    """Assert that the program of the whole case compiles without a warning and says nothing beside accepted samples.

    The samples' own words on stdout and stderr are theirs.
    """
    for source in samples:
        done = bench.beside(program_text(case), source)

        assert (case.name, source.parent.name, done.exit_code) == (case.name, source.parent.name, 0), done
        assert b"the handout" not in done.stderr


def content_under_valgrind(bench: Bench, source: Path) -> None:
    """Assert that a case that is cut short leaves nothing behind, by the handout's own command line, under Valgrind."""
    case = list(cases().values())[ACCEPTED.index(source) :: len(ACCEPTED)][0]
    program = bench.linked(program_text(case, len(case.trace.operations) // 2), source)

    assert bench.run(*VALGRIND, str(program)).exit_code == 0, source


def shown_programs(record: Record) -> list[ShownProgram]:
    """Return the programs of a sample's causes, as instructors and as students see them."""
    causes = [cause for reader in reversed(Audience) for cause in record.causes_for(reader)]
    return list({cause.cases[0]: _program(cause) for cause in causes}.values())


def one_for_each_mistake(samples: Iterable[Path]) -> list[tuple[Path, ShownProgram]]:
    """Return for each entry of the mistake table the first of these samples that shows a cause which it explains.

    A sample whose report begins with that cause goes before those that show it further down.
    """
    wrong = sorted({*samples} & {*WRONG})
    first: dict[Mistake, tuple[int, Path, ShownProgram]] = {}
    for sample, record in zip(wrong, all_graded("paged_kv", wrong), strict=True):
        for place, cause in enumerate(cause for cause in record.causes if cause.cases):
            mistake = mistake_of("paged_kv", cause.hint)
            if mistake is not None and (mistake not in first or place < first[mistake][0]):
                first[mistake] = (place, sample, _program(cause))
    return [(sample, program) for _, sample, program in first.values()]


def _program(cause: Cause) -> ShownProgram:
    return ShownProgram(cause.cases[0], max(cause.operation, 1) - 1)


def _assert_peaceful(bench: Bench, text: str) -> None:
    """No accepted sample fails the program, which many wrong ones may share; each program tries a part of them."""
    if text in bench.peaceful:
        return
    for accepted in ACCEPTED[crc32(text.encode()) % SHARERS :: SHARERS]:
        done = bench.beside(text, accepted)

        assert (accepted.parent.name, done.exit_code) == (accepted.parent.name, 0), done.stderr.decode()
    bench.peaceful.add(text)
