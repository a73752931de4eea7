"""The command line: one file per command. Nothing below prints; everything here does."""

from __future__ import annotations

import signal
import sys

from grader.core.errors import ExitCode

__all__ = ["main"]


def main() -> None:
    """Entry point. The commands are imported in here, so that Ctrl-C during that second ends like any other."""
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                signal.signal(number, _interrupt)
        from grader.cli.streams import set_up

        set_up()
        from grader.cli.app import app

        code = app(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("grade: interrupted\n")
        code = ExitCode.INTERRUPTED
    sys.exit(code)


def _interrupt(*_: object) -> None:
    """A signal that asks us to stop is the same as Ctrl-C."""
    raise KeyboardInterrupt
