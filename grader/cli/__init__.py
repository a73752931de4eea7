"""The command line: one file per command. Nothing below prints; everything here does."""

from __future__ import annotations

import io
import signal
import sys

from grader.errors import ExitCode

__all__ = ["main"]


def main() -> None:
    """Entry point. The commands are imported in here, so that Ctrl-C during that second ends like any other."""
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        _write_anything()
        from grader.cli.app import app

        code = app(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("grade: interrupted\n")
        code = ExitCode.INTERRUPTED
    sys.exit(code)


def _interrupt(*_: object) -> None:
    """A signal that asks us to stop is the same as Ctrl-C."""
    raise KeyboardInterrupt


def _write_anything() -> None:
    """A character that the terminal's encoding lacks becomes a question mark; the rest of the report is shown."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
