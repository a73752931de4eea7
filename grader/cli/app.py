"""All commands, the dispatch from the words of a command line to one of them, and the exit codes with which they end.

The commands in this file are about the command line itself: the record's schema and completion.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any

from grader import NAME, __version__
from grader.assignment.input_file import suggestion
from grader.cli.parser import HELP, NoOptions, Parser, argument, declared, paragraphs, show
from grader.cli.terminal import complain, drop_what_failed
from grader.core.errors import DISK_ERRORS, ExitCode, GraderError, InputError, UsageError

COMMANDS = (
    *("run", "cases", "explain", "try", "repro", "hunt", "watch"),
    *("batch", "runs", "show", "export", "regrade", "diff", "compare"),
    *("similar", "calibrate", "pack", "doctor", "schema", "completion"),
)
"""In the order of the help. Each is a function, whose docstring is the help. If it has options, it takes their record,
a class such as `RunOptions` beside it."""

_IN = {
    "explain": "cases",
    "try": "calibrate",
    "runs": "stored",
    "show": "stored",
    "export": "stored",
    "diff": "stored",
    "schema": "app",
    "completion": "app",
}
"""The modules of the commands; the others have a module of their own. It is imported when the command is called."""

_SHELLS = ("bash", "zsh", "tcsh")
_TEXT = "Grade programming assignments: what is right, what is wrong, why, and how many points it earns."


def app(words: Sequence[str]) -> ExitCode:
    """Run a command line, and return the exit code. An error becomes one message; no traceback reaches a user."""
    try:
        try:
            return _run(words)
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


def _broken(error: Exception) -> ExitCode:
    if os.environ.get("GRADE_TRACEBACK"):
        raise error
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        place = "stdout" if drop_what_failed() else error.filename or "a file"
        message = f"{place} could not be written: {error.strerror}. Make room there, or write somewhere else"
        return _end(f"{message}\n(This costs nobody a point.)", ExitCode.JUDGE_ERROR)
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return _end("the folder where you are was removed or replaced; cd into it again", ExitCode.BAD_INPUT)
    hint = "(This is the grader's fault; it costs nobody a point. GRADE_TRACEBACK=1 shows where.)"
    return _end(f"the grader broke: {type(error).__name__}: {error}\n{hint}", ExitCode.JUDGE_ERROR)


def _is_nowhere() -> bool:
    """Whether the working directory has no path any more."""
    try:
        os.getcwd()  # noqa: PTH109 - nothing is done with it
    except FileNotFoundError:
        return True
    return False


def _end(text: str, code: ExitCode) -> ExitCode:
    complain(text)
    return code


def _run(words: Sequence[str]) -> ExitCode:
    if not words or words[0] in ("-h", "--help"):
        _show_help()
        return ExitCode.ACCEPTED if words else ExitCode.BAD_INPUT
    name = words[0]
    if name == "--version":
        print(f"{NAME} {__version__}")
        return ExitCode.ACCEPTED
    if name not in COMMANDS:
        raise UsageError(f"there is no command '{name}'{suggestion(name, COMMANDS)}; `grade -h` lists them")
    command, record = _command(name)
    options = Parser(f"grade {name}", command.__doc__ or "", record).read(words[1:])
    gc.freeze()  # all of it stays to the end, so no search for garbage needs to look at it
    gc.enable()
    return command(*[options] * (record is not NoOptions))


def _command(name: str) -> tuple[Callable[..., ExitCode], type[Any]]:
    """Return a command and the record of its options."""
    module = import_module(f"grader.cli.{_IN.get(name, name)}")
    function = f"{name}_" if iskeyword(name) else name
    return getattr(module, function), getattr(module, f"{name.capitalize()}Options", NoOptions)


def _show_help() -> None:
    commands = [(name, paragraphs(_command(name)[0].__doc__ or "")[0]) for name in COMMANDS]
    options = [("-h, --help", HELP), ("--version", "Show name and version and exit.")]
    show("grade [OPTIONS] COMMAND [ARGS]...", _TEXT, {"Options": options, "Commands": commands})


def schema() -> ExitCode:
    """Print the JSON schema that every `--format json` report obeys."""
    import json

    from grader.core import record

    sys.stdout.write(json.dumps(record.schema(), indent=1) + "\n")
    return ExitCode.ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """The options of `grade completion`."""

    shell: str = argument("SHELL", f"Yours: {', '.join(_SHELLS)}.", choices=_SHELLS)


def completion(options: CompletionOptions) -> ExitCode:
    """Print a script with which a shell completes commands, options, formats and case names when Tab is pressed.

    It works for `grade` and for every path that ends with it.

    Examples:
        eval "$(scripts/grade completion bash)"
        scripts/grade completion bash >> ~/.bashrc
        scripts/grade completion zsh > ~/.zfunc/_grade
    """
    import argparse

    import shtab

    everything = argparse.ArgumentParser(prog="grade")  # shtab needs one parser of all commands
    everything.add_argument("--version", action="store_true")
    commands = everything.add_subparsers()
    for name in COMMANDS:
        command, record = _command(name)
        reader = commands.add_parser(name, help=(command.__doc__ or "").partition("\n")[0])
        for names, how, each in declared(record):
            action = reader.add_argument(*names, **how)
            if offer := each.metadata["offer"]:
                action.choices = list(offer())
            elif how.get("type") is Path:
                action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(everything, options.shell))
    return ExitCode.ACCEPTED
