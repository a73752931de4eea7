"""The command line: commands as functions of their options. Only this package prints; the packages it uses do not."""

from __future__ import annotations

import gc
import signal
import sys

from grader.core.errors import ExitCode

__all__ = ["main"]

_MANY = 100_000
"""Python looks for garbage after this many new objects: a grading makes thousands and needs most to its end."""


def main() -> None:
    """Entry point. The commands are imported in here, so that Ctrl-C during their import ends the program as usual."""
    gc.disable()  # imported objects are no garbage; `app` enables the collector for the command
    gc.set_threshold(_MANY)
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP: keep it so
                signal.signal(number, _interrupt)
        from grader.cli.terminal import set_up

        set_up()
        from grader.cli.app import app

        code = app(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("grade: interrupted\n")
        code = ExitCode.INTERRUPTED
    gc.freeze()  # else the interpreter would search all objects for garbage before it ends
    sys.exit(code)


def _interrupt(*_: object) -> None:
    """Treat a termination signal like Ctrl-C."""
    raise KeyboardInterrupt
