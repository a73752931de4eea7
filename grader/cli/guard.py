"""Every end of a command is one of the exit codes, and no traceback reaches a user."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

import typer

from grader.errors import ExitCode, GraderError, InputError

__all__ = ["guarded"]


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with its errors turned into one message and an exit code."""

    @functools.wraps(command)
    def run(*arguments: object, **options: object) -> None:
        try:
            try:
                command(*arguments, **options)
            finally:
                sys.stdout.flush()  # Python's own flush at the end could only complain
        except (typer.Exit, BrokenPipeError):  # a reader that has gone, such as `head`, is typer's business: quiet
            raise
        except InputError as error:
            raise _end(str(error), error.exit_code) from None
        except GraderError as error:
            raise _end(
                f"{error}\n(The grader could not do its work. This costs nobody a point.)", error.exit_code
            ) from None
        except Exception as error:
            if os.environ.get("GRADE_TRACEBACK"):
                raise
            message = f"the grader broke: {type(error).__name__}: {error}"
            hint = "(Our fault; it costs nobody a point. GRADE_TRACEBACK=1 shows where.)"
            raise _end(f"{message}\n{hint}", ExitCode.JUDGE_ERROR) from None

    return run


def _end(text: str, code: ExitCode) -> typer.Exit:
    sys.stderr.write(f"grade: {text}\n")
    return typer.Exit(code)
