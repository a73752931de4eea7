"""Everything that can be wrong on our side of the desk. A wrong submission is a value, never one of these.

GraderError                 exit code 3: our fault; costs no student a point
├── ToolMissing             a program that we need is not installed, with the command that installs it
├── CannotStart             a program is there and cannot be started
├── DriverError             our own driver did not build, or broke its own protocol
├── OtherGrader             who should grade has another grader, other cases or other tools than we
├── NoWorkers               no machine is there that grades for us
├── TooBusy                 this machine has no time for a program that does its work
├── OutOfRoom               this machine has no disk, memory, processes or descriptors left for it
├── StoreTrouble            a store cannot be used any longer: it is gone, its disk is full, a part of it is damaged
├── Unprotected             this machine cannot take as much from a program as was asked for
└── InputError              exit code 2: what we were given to read is wrong
    ├── UsageError          an option or a path
    ├── CaseFileError       a case file; all its mistakes at once
    ├── RubricError         a rubric; all its mistakes at once
    ├── ClassFileError      a roster, a list of overrides, an export's list of submissions; all its mistakes at once
    └── StoreError          a store that is none, or comes from a newer grader
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

__all__ = [
    "MOST_SHOWN",
    "CannotStart",
    "CaseFileError",
    "ClassFileError",
    "DriverError",
    "ExitCode",
    "GraderError",
    "InputError",
    "NoWorkers",
    "OtherGrader",
    "OutOfRoom",
    "Problem",
    "RubricError",
    "StoreError",
    "StoreTrouble",
    "TooBusy",
    "ToolMissing",
    "Unprotected",
    "UsageError",
]


MOST_SHOWN = 20
"""Mistakes that are told of one file; of others only the number. Nobody reads hundreds, and most have one cause."""

_MOST_MESSAGE = 500


class ExitCode(IntEnum):
    """What `grade` exits with (design: verdicts and exit codes)."""

    ACCEPTED = 0  # every submission has all points
    NOT_ACCEPTED = 1  # at least one has not
    BAD_INPUT = 2  # a wrong option, path, case file or rubric
    JUDGE_ERROR = 3  # the grader's own fault
    INTERRUPTED = 130  # Ctrl-C
    READER_GONE = 141  # whoever read what we print has gone; what a shell says of a program that ends of SIGPIPE


class GraderError(Exception):
    """The grader cannot do its work."""

    exit_code = ExitCode.JUDGE_ERROR


class ToolMissing(GraderError):
    """A program is not installed; `install` is the command to type, where we know it."""

    def __init__(self, tool: str, install: str, instead: str = "") -> None:
        self.tool = tool
        self.install = install
        self.instead = instead
        super().__init__(tool, install, instead)

    def __str__(self) -> str:
        lines = [f"{self.tool} is not installed. Install it with:", f"    {self.install}"]
        return "\n".join([*lines, self.instead] if self.instead else lines)


class CannotStart(GraderError):
    """A program that we need cannot be started."""


class DriverError(GraderError):
    """The driver, which is ours, did not do what it must."""


class OtherGrader(GraderError):
    """A record from there would not be the one that was asked for."""


class NoWorkers(GraderError):
    """The machines that should grade for us are not there, or no longer."""


class TooBusy(GraderError):
    """The machine gives a program no time, so nothing can be said about it."""


class OutOfRoom(GraderError):
    """The machine has too little left of something; the message says of what, where, and what to do."""


class StoreTrouble(GraderError):
    """A store was usable, and is no longer, or not all of it."""


class Unprotected(GraderError):
    """Less stands between student code and this machine than was demanded."""


class InputError(GraderError):
    """Something that we were given cannot be used."""

    exit_code = ExitCode.BAD_INPUT


class UsageError(InputError):
    """An option or a path is wrong; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a file, with its line."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        cut = "" if len(self.message) <= _MOST_MESSAGE else "..."
        return f"{self.path}:{self.line}: {self.message[:_MOST_MESSAGE]}{cut}"


class _FileError(InputError):
    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: Sequence[Problem] = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(_told(self.problems))


def _told(problems: Sequence[Problem]) -> Iterator[str]:
    """The first mistakes of each file, and how many more there are."""
    by_path: dict[Path, list[Problem]] = {}
    for problem in problems:
        by_path.setdefault(problem.path, []).append(problem)
    for path, found in by_path.items():
        yield from map(str, found[:MOST_SHOWN])
        if len(found) > MOST_SHOWN:
            yield f"{path}: and {len(found) - MOST_SHOWN} more"


class CaseFileError(_FileError):
    """One or more case files are wrong."""


class RubricError(_FileError):
    """A rubric is wrong."""


class ClassFileError(_FileError):
    """A file about a class is wrong: its roster, its overrides, an export's list of submissions."""


class StoreError(InputError):
    """A file is no store of ours, or one that we cannot read."""
