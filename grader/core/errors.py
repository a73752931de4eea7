"""Exceptions for failures of the grader and its inputs. A wrong submission is a value, never one of these.

GraderError                 exit code 3: the grader's fault; costs no student a point
├── ToolMissing             a required program is not installed; with the command that installs it
├── CannotStart             a program is installed but cannot be started
├── DriverError             the grader's own driver did not build, or broke its own protocol
│   └── BrokenTool          a tool of this machine fails with known-good input too
├── OtherGrader             a worker has another grader, other cases or other tools than this process
├── NoWorkers               there is no worker machine to grade
├── TooBusy                 this machine is too busy to run a working program in time
├── OutOfRoom               this machine has too little disk, memory, processes or descriptors left
├── StoreFailure            a store cannot be used any longer: it is gone, its disk is full, a part of it is damaged
├── Unprotected             this machine cannot confine a program as far as was requested
└── InputError              exit code 2: an input is wrong
    ├── UsageError          an option or a path
    ├── CaseFileError       a case file; all its mistakes at once
    ├── RubricError         a rubric; all its mistakes at once
    ├── ClassFileError      a roster, a list of overrides, an export's list of submissions; all its mistakes at once
    └── StoreError          a file that is not a store, or a store of a newer grader

Abandoned                   not an error: the result is no longer wanted, as after Ctrl-C, but the command continues

A stage of a grading that cannot change points may fail (`OptionalStages`): the grading goes on without it, and the
record says so.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TypeVar

MOST_SHOWN = 20
"""The most mistakes shown for one file. The others are counted: nobody reads hundreds, and most share a cause."""

_MOST_MESSAGE = 500

DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""The numbers of an `OSError` for a disk that is full or fails, whatever path is written."""


class ExitCode(IntEnum):
    """The exit codes of `grade` (grader/README.md, "Verdicts and exit codes")."""

    ACCEPTED = 0  # every submission has all points
    NOT_ACCEPTED = 1  # at least one submission does not have all points
    BAD_INPUT = 2  # a wrong option, path, case file or rubric
    JUDGE_ERROR = 3  # the grader's own fault
    INTERRUPTED = 130  # Ctrl-C
    READER_GONE = 141  # the reader of the output closed it; a shell reports this code for a program ended by SIGPIPE


class GraderError(Exception):
    """The grader cannot do its work."""

    exit_code = ExitCode.JUDGE_ERROR
    of_machine = False
    """Whether the whole machine or the store has the problem, not only the grading of one submission."""


class _MachineTrouble(GraderError):
    of_machine = True


class Abandoned(BaseException):
    """The result of this grading is no longer wanted (`grader.system.process_tree.Patience.unwanted`).

    Like an interrupt it is not an `Exception`, so that no handler takes it for a failure and continues.
    """


class ToolMissing(_MachineTrouble):
    """A program is not installed; `install` is the command that installs it, if known."""

    def __init__(self, tool: str, install: str, instead: str = "") -> None:
        self.tool = tool
        self.install = install
        self.instead = instead
        super().__init__(tool, install, instead)

    def __str__(self) -> str:
        lines = [f"{self.tool} is not installed. Install it with:", f"    {self.install}"]
        return "\n".join([*lines, self.instead] if self.instead else lines)


class CannotStart(_MachineTrouble):
    """A required program cannot be started."""


class DriverError(GraderError):
    """The driver, a part of the grader, did not work as required."""


class BrokenTool(DriverError):
    """A tool of this machine fails with known-good input, so no submission is the cause."""

    of_machine = True


class OtherGrader(_MachineTrouble):
    """A worker has another grader, other cases or other tools than this process, so its records could differ."""


class NoWorkers(_MachineTrouble):
    """No worker machine is available, or none is available any longer."""


class TooBusy(GraderError):
    """The machine gave a program so little time that no result can be trusted. The program may be the reason."""


class OutOfRoom(_MachineTrouble):
    """The machine has too little of a resource left; the message says which one, where, and what to do."""


class StoreFailure(_MachineTrouble):
    """A store that was usable, or a part of it, is no longer usable."""


class Unprotected(_MachineTrouble):
    """This machine is less protected from student code than was requested."""


class InputError(GraderError):
    """An input cannot be used."""

    exit_code = ExitCode.BAD_INPUT


class UsageError(InputError):
    """An option or a path is wrong; the message says what to write instead."""


def unwritable(path: Path, error: OSError) -> Exception:
    """Return the exception to raise when the operating system refuses to write a path that the user chose.

    That is a `UsageError`, or the `OSError` with the path if the disk is full or fails.
    """
    if error.errno is None or error.errno in DISK_ERRORS:
        return OSError(error.errno, error.strerror, str(path))
    return UsageError(f"{path} cannot be written: {error.strerror}; write another path")


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One mistake in a file, with its line."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        cut = "" if len(self.message) <= _MOST_MESSAGE else "..."
        return f"{self.path}:{self.line}: {self.message[:_MOST_MESSAGE]}{cut}"


class _FileError(InputError):
    def __init__(self, problems: Iterable[FileProblem]) -> None:
        self.problems: Sequence[FileProblem] = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(_lines(self.problems))


def _lines(problems: Sequence[FileProblem]) -> Iterator[str]:
    """Yield the first mistakes of each file, and the number of further ones."""
    by_path: dict[Path, list[FileProblem]] = {}
    for problem in problems:
        by_path.setdefault(problem.path, []).append(problem)
    for path, of_file in by_path.items():
        yield from map(str, of_file[:MOST_SHOWN])
        if len(of_file) > MOST_SHOWN:
            yield f"{path}: and {len(of_file) - MOST_SHOWN} more"


class CaseFileError(_FileError):
    """One or more case files are wrong."""


class RubricError(_FileError):
    """A rubric is wrong."""


class ClassFileError(_FileError):
    """A file about a class is wrong: its roster, its overrides, an export's list of submissions."""


class StoreError(InputError):
    """A file is not a store of the grader, or a store that this grader cannot read."""


T = TypeVar("T")
U = TypeVar("U")


class OptionalStage(StrEnum):
    """A stage whose result a report can omit."""

    LOST_MEMORY = "lost-memory"  # where memory was lost; that it was lost is known without this stage
    LINES = "lines"
    EXPLANATIONS = "explanations"
    ADVICE = "advice"
    SEARCH = "search"
    PRINTS = "prints"
    SOURCE = "source"
    PICTURES = "pictures"
    WOULD_SCORE = "would-score"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFailure:
    """A stage that failed, so that a report lacks what it would have found."""

    stage: OptionalStage
    error: str
    """The exception with its message, and the line of the grader that raised it."""


@dataclass(slots=True)
class OptionalStages:
    """Runs the optional stages of one grading and collects their failures."""

    failures: list[StageFailure] = field(default_factory=list)

    def run(self, stage: OptionalStage, work: Callable[[], T], *, otherwise: U) -> T | U:
        """Return what `work` returns. If it raises an exception, note the failure and return `otherwise`.

        Interrupts are not caught: they end the grading.
        """
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - whatever it is, it cannot have changed points
            self.failures.append(StageFailure(stage=stage, error=_described(error)))
            return otherwise


def _described(error: Exception) -> str:
    """Return the exception's class and message, and the file and line that raised it, without the machine's folders."""
    import traceback  # noqa: PLC0415 - only failures need it

    description = "".join(traceback.format_exception_only(error)).strip()
    (place,) = traceback.extract_tb(error.__traceback__, limit=-1)
    return f"{description} ({Path(place.filename).name}:{place.lineno})"
