"""Every end of a command is one of the exit codes, and no traceback reaches a user."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable

import typer

from grader.errors import ExitCode, GraderError, InputError

__all__ = ["guarded", "interrupt"]


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with its errors turned into one message and an exit code."""

    @functools.wraps(command)
    def run(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            raise _end("interrupted", ExitCode.INTERRUPTED) from None
        except InputError as error:
            raise _end(str(error), error.exit_code) from None
        except GraderError as error:
            raise _end(
                f"{error}\n(The grader could not do its work. This costs nobody a point.)", error.exit_code
            ) from None
        except BrokenPipeError:  # the reader of our output has gone, for example `head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.JUDGE_ERROR) from None
        except Exception as error:
            if os.environ.get("GRADE_TRACEBACK"):
                raise
            message = f"the grader broke: {type(error).__name__}: {error}"
            hint = "(Our fault; it costs nobody a point. GRADE_TRACEBACK=1 shows where.)"
            raise _end(f"{message}\n{hint}", ExitCode.JUDGE_ERROR) from None

    return run


def interrupt(*_: object) -> None:
    """What a signal that asks us to stop does: the same as Ctrl-C."""
    raise KeyboardInterrupt


def _end(text: str, code: ExitCode) -> typer.Exit:
    sys.stderr.write(f"grade: {text}\n")
    return typer.Exit(code)
