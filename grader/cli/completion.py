"""`grade completion`: a script with which a shell completes commands, options and names when Tab is pressed.

shtab writes the script, because it supports three shells. It needs one argparse parser of all commands, which is made
only here.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grader.cli.app import COMMANDS, parser_of
from grader.cli.parser import Parser
from grader.core.errors import ExitCode

_SHELLS = ("bash", "zsh", "tcsh")


def options(parser: Parser) -> None:
    """Declare the command's options and arguments."""
    parser.argument("shell", metavar="SHELL", choices=_SHELLS, help=f"Yours: {', '.join(_SHELLS)}.")


def completion(shell: str) -> ExitCode:
    """Print a script with which a shell completes commands, options, formats and case names when Tab is pressed.

    It works for `grade` and for every path that ends with it.

    Examples:
        eval "$(scripts/grade completion bash)"
        scripts/grade completion bash >> ~/.bashrc
        scripts/grade completion zsh > ~/.zfunc/_grade
    """
    import shtab

    everything = argparse.ArgumentParser(prog="grade")
    everything.add_argument("--version", action="store_true")
    commands = everything.add_subparsers()
    for name in COMMANDS:
        command, about = parser_of(name)
        reader = commands.add_parser(name, help=about)
        for names, how, offer in command.declared():
            action = reader.add_argument(*names, **how)
            if offer is not None:
                action.choices = list(offer())
            elif how.get("type") is Path:
                action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(everything, shell))
    return ExitCode.ACCEPTED
