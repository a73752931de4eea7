"""Every end of a command is one of the exit codes, and no traceback reaches a user."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence

from grader.cli.log import complain
from grader.errors import ExitCode, GraderError, InputError

__all__ = ["guarded"]


def guarded(app: Callable[[Sequence[str]], ExitCode]) -> Callable[[Sequence[str]], ExitCode]:
    """The application, with its errors turned into one message and an exit code."""

    @functools.wraps(app)
    def run(words: Sequence[str]) -> ExitCode:
        try:
            try:
                return app(words)
            finally:
                sys.stdout.flush()  # Python's own flush at the end could only complain
        except BrokenPipeError:  # a reader that has gone, such as `head`, is nobody's fault: quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.NOT_ACCEPTED
        except InputError as error:
            return _end(str(error), error.exit_code)
        except GraderError as error:
            return _end(f"{error}\n(The grader could not do its work. This costs nobody a point.)", error.exit_code)
        except Exception as error:
            if os.environ.get("GRADE_TRACEBACK"):
                raise
            message = f"the grader broke: {type(error).__name__}: {error}"
            hint = "(Our fault; it costs nobody a point. GRADE_TRACEBACK=1 shows where.)"
            return _end(f"{message}\n{hint}", ExitCode.JUDGE_ERROR)

    return run


def _end(text: str, code: ExitCode) -> ExitCode:
    complain(text)
    return code
