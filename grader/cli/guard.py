"""Makes every command end with one of the exit codes; no traceback reaches a user."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence

from grader.cli.log import complain
from grader.cli.streams import drop_what_failed
from grader.core.errors import DISK_ERRORS, ExitCode, GraderError, InputError


def guarded(app: Callable[[Sequence[str]], ExitCode]) -> Callable[[Sequence[str]], ExitCode]:
    """Wrap the application: turn its errors into one message and an exit code."""

    @functools.wraps(app)
    def run(words: Sequence[str]) -> ExitCode:
        try:
            try:
                return app(words)
            finally:
                sys.stdout.flush()  # Python's own flush at exit could only print an error
        except BrokenPipeError as error:
            if not drop_what_failed():
                return _broken(error)
            return ExitCode.READER_GONE  # such as `head`: not an error, so no message
        except SystemExit:
            if drop_what_failed():  # rich exits by itself when the reader has closed the pipe
                return ExitCode.READER_GONE
            raise
        except InputError as error:
            return _end(str(error), error.exit_code)
        except GraderError as error:
            return _end(f"{error}\n(The grader could not do its work. This costs nobody a point.)", error.exit_code)
        except Exception as error:  # noqa: BLE001 - no traceback reaches a user
            return _broken(error)

    return run


def _broken(error: Exception) -> ExitCode:
    if os.environ.get("GRADE_TRACEBACK"):
        raise error
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        place = "stdout" if drop_what_failed() else error.filename or "a file"
        message = f"{place} could not be written: {error.strerror}. Make room there, or write somewhere else"
        return _end(f"{message}\n(This costs nobody a point.)", ExitCode.JUDGE_ERROR)
    hint = "(Our fault; it costs nobody a point. GRADE_TRACEBACK=1 shows where.)"
    return _end(f"the grader broke: {type(error).__name__}: {error}\n{hint}", ExitCode.JUDGE_ERROR)


def _end(text: str, code: ExitCode) -> ExitCode:
    complain(text)
    return code
