"""The rival: a harness that starts a native and a Valgrind process for every case.

It does the whole work on the same submission and the same cases: it runs the cases, reads the records, and compares
them with the reference. It starts processes directly, without the grader's sandbox.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from grader.bench.subject import Subject
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.core.optional_stages import OptionalStages
from grader.runtime.comparison import End
from grader.runtime.native.project import NativeProgram, native_program
from grader.system.process import Command, Completed
from grader.system.sandbox import NO_VARIABLES, Limits, Workspace, workspace

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
        """Run the same programs with the same input; files in memory replace the pipes."""
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
    """A program that is put into the folder only once."""

    def place(self, work: Workspace, *, checked: bool = False) -> str:
        name = "checked" if checked else "program"
        return name if (work.folder / name).exists() else super(_InPlace, self).place(work, checked=checked)


def plain(folder: Path, name: str) -> PlainFolder:
    """Make a fresh folder inside this one."""
    inner = folder / name
    inner.mkdir()
    return PlainFolder(folder=inner, user=None)


def dynamic(subject: Subject) -> NativeProgram:
    """Build the submission with the system's libc under Valgrind, as the handout links it."""
    with workspace() as work:
        built = subject.lab.runtime.build(work, subject.source + _NEEDS_LIBC, beside={}, optional=OptionalStages())
    if built.program is None:
        raise UsageError(f"{subject.path}: {built.findings[0].message}")
    return native_program(built.program)


def naive(subject: Subject, work: Workspace, program: NativeProgram, cases: Sequence[Case]) -> int:
    """Run one native and one Valgrind process per case; return the number of cases with nothing wrong."""
    standing = _InPlace(content=program.content, checked=program.checked, source_name=program.source_name)
    return sum(_fine(subject, work, standing, case) for case in cases)


def _fine(subject: Subject, work: Workspace, program: NativeProgram, case: Case) -> bool:
    (comparison,) = subject.compare(subject.replay(work, [case], program))
    checked = subject.memcheck(work, [case], program)
    return comparison.end is End.REACHED and not comparison.deviations and not checked.counted and not checked.stopped
