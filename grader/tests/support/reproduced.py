"""A test bench for failing cases as C programs: samples are shared libraries, so that a program runs with many."""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path

from grader.assignment import load
from grader.core.case import Case
from grader.core.verdict import Verdict
from grader.labs import LABS
from grader.runtime.native.compile.project import FLAGS
from grader.system.process import Completed, Patience, run
from grader.tests.support.command import ROOT, SAMPLES

__all__ = ["ACCEPTED", "PEACEFUL", "SAMPLES", "Bench", "cases", "program_text", "said"]

_HEADER = ROOT / "grader" / "labs" / "paged_kv" / "llm_memory.h"
PEACEFUL = [path for path in SAMPLES.glob("*/*/llm_memory.c") if not path.parent.name.startswith("hostile_")]
"""Samples that are not hostile: the programs here run without a sandbox."""
ACCEPTED = sorted(path for path in PEACEFUL if path.parts[-3] == Verdict.ACCEPTED)


@cache
def cases() -> dict[str, Case]:
    """Return all cases by name."""
    lab = LABS["paged_kv"]()
    return {case.name: case for case in load.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed)}


def program_text(case: Case, operation: int | None = None) -> str:
    """Return the case as a C program, up to an operation (counted from 0) or to its end."""
    last = len(case.trace.operations) - 1
    return LABS["paged_kv"]().reproduce(case, last if operation is None else operation)


def said(failed: Completed) -> str:
    """Return the last lines of its output, after the student's own: where it failed, the handout, what was found."""
    text = failed.stderr.decode(errors="replace")
    found = re.search(r"^repro\.c:\d+: .+\n  the handout: .+\n(  .+\n){1,3}\Z", text, re.MULTILINE)
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

    def library(self, source: Path) -> Path:
        """Compile the sample as a library, once, and return the folder with it."""
        if source not in self.libraries:
            place = self.libraries[source] = self.folder / f"library{len(self.libraries)}"
            place.mkdir()
            output = place / "libllm_memory.so"
            self.compile("-fPIC", "-shared", f"-I{_HEADER.parent}", str(source), "-o", str(output))
        return self.libraries[source]

    def program(self, text: str) -> Path:
        """Compile a program that runs with any library; without optimisation, which would take three times as long."""
        if text not in self.programs:
            name = f"shared{len(self.programs)}"
            (self.folder / "repro.c").write_text(text, encoding="utf-8")
            here = f"-I{_HEADER.parent}", f"-L{self.first}"
            self.compile("-O0", *here, "repro.c", "-lllm_memory", "-o", name)
            self.programs[text] = self.folder / name
        return self.programs[text]

    def linked(self, text: str, source: Path) -> Path:
        """Compile a program together with a student's file, with the handout's command."""
        (self.folder / "repro.c").write_text(text, encoding="utf-8")
        (self.folder / "llm_memory.c").write_bytes(source.read_bytes())
        (self.folder / "llm_memory.h").write_bytes(_HEADER.read_bytes())
        command = LABS["paged_kv"]().reproduce_command.split()
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
