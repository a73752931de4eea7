"""All commands, the options of a command, the dispatch of a command line, and the exit codes.

The options of a command are a frozen data class: argparse's parser, the help and the completion are made from its
fields. Each field is an option, an argument, or a data class of options that several commands share:

    jobs: int = number_option("--jobs", "N", "The number of submissions graded at once.", 1, 64, default=1)

The command-line library that was used before checks values with pydantic. Both together took 1.4 times as long for one
command line as gcc takes for a submission.

The commands in this file are about the command line itself: the record's schema and completion.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from textwrap import indent
from typing import Any, Generic, NoReturn, TypeVar

from grader import NAME, __version__
from grader.assignment.input_file import suggestion
from grader.cli.terminal import complain, drop_what_failed
from grader.core.case import Number
from grader.core.errors import DISK_ERRORS, ExitCode, GraderError, InputError, UsageError

T = TypeVar("T")

Offer = Callable[[], Iterable[str]]
"""Returns the possible values of an option. It is called only when the values are needed, as for shell completion."""

HELP = "Show this message and exit."


def option(name: str, metavar: str, text: str, *, default: Any = None, offer: Offer | None = None, **how: Any) -> Any:
    """Return a field for an option with a value; `how` as in argparse, `offer` returns the values for completion."""
    return _declared((name,), offer, default=default, metavar=metavar, help=text, **how)


def path_option(name: str, metavar: str, text: str, *, default: Path | None = None) -> Any:
    """Return a field for an option whose value is a path."""
    return option(name, metavar, text, default=default, type=Path)


def number_option(name: str, metavar: str, text: str, *limits: int, default: int | None = None) -> Any:
    """Return a field for an option whose value is a whole number; `limits` are the least and optionally the largest."""
    return option(name, metavar, text, default=default, type=number(Number(name, *limits)))


def repeated(name: str, metavar: str, text: str, **how: Any) -> Any:
    """Return a field for an option that may be written several times. Its value is the tuple of all values."""
    return _declared((name,), default=(), metavar=metavar, help=text, action="append", **how)


def flag(name: str, text: str) -> Any:
    """Return a field for an option without a value. It is True if the option is written."""
    return _declared((name,), default=False, help=text, action="store_true")


def argument(metavar: str, text: str, *, offer: Offer | None = None, **how: Any) -> Any:
    """Return a field for a positional argument. With nargs="?" it may be omitted and is None then."""
    default = {"default": None} if how.get("nargs") == "?" else {}
    return _declared((), offer, metavar=metavar, help=text, **how, **default)


def shared(kind: type[Any]) -> Any:
    """Return a field for a data class of options that several commands share."""
    return field(default_factory=kind, metadata={"record": kind})


def _declared(names: tuple[str, ...], offer: Offer | None = None, **how: Any) -> Any:
    default = {"default": how.pop("default")} if "default" in how else {}
    return field(**default, metadata={"names": names, "offer": offer, "how": how})


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of a command that has neither options nor arguments."""


def declared(record: type[Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any], Field[Any]]]:
    """Yield (names, keywords for argparse, field) for each field of an options class, including its shared options.

    argparse sets no value for an option that is not written, so that the class's own defaults hold.
    """
    for each in fields(record):
        if "record" in each.metadata:
            yield from declared(each.metadata["record"])
        elif names := each.metadata["names"]:
            yield names, {**each.metadata["how"], "dest": each.name, "default": argparse.SUPPRESS}, each
        else:
            yield (each.name,), each.metadata["how"], each


class _Strict(argparse.ArgumentParser):
    def __init__(self, name: str, prefix: str) -> None:
        super().__init__(prog=name, prefix_chars=prefix, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} -h`")


class Parser(Generic[T]):
    """Parses the arguments of one command into its options class `record`. `text` describes the command in the help."""

    def __init__(self, name: str, text: str, record: type[T]) -> None:
        self._name, self._text, self._record = name, text, record
        self._argument_reader, self._option_reader = _Strict(name, "\0"), _Strict(name, "-")
        for names, how, each in declared(record):
            (self._option_reader if each.metadata["names"] else self._argument_reader).add_argument(*names, **how)
        self._option_reader.add_argument("-h", "--help", action="store_true")

    def read(self, words: Sequence[str]) -> T:
        """Return the options. Options and arguments may be in any order; after `--` every word is an argument.

        Raises `UsageError`. With --help it shows the help and exits.
        """
        end = words.index("--") if "--" in words else len(words)
        values, rest = self._option_reader.parse_known_args(words[:end])
        if values.help:
            self._show_help()
            sys.exit()
        known = self._option_reader._option_string_actions  # noqa: SLF001 - argparse has no other list
        for word in rest:
            if word.startswith("-") and word != "-":
                self._option_reader.error(f"there is no option {word}{suggestion(word, known)}")
        self._argument_reader.parse_args([*rest, *words[end + 1 :]], values)
        return _filled(self._record, vars(values))

    def _show_help(self) -> None:
        arguments, about_options, usage = [], [], [self._name, "[OPTIONS]"]
        for names, how, each in declared(self._record):
            if each.metadata["names"]:
                about_options.append(
                    (" ".join([*names, how.get("metavar", "")]).strip(), _with_default(how["help"], each))
                )
            else:
                arguments.append((how["metavar"], how["help"]))
                usage.append(f"[{how['metavar']}]" if how.get("nargs") == "?" else how["metavar"])
        about_options.append(("-h, --help", HELP))
        show(" ".join(usage), self._text, {"Arguments": arguments, "Options": about_options})


def _filled(record: type[T], values: Mapping[str, Any]) -> T:
    """Return an object of an options class, and of the shared options in it, with these values; lists become tuples."""
    given: dict[str, Any] = {}
    for each in fields(record):  # type: ignore[arg-type]  # a data class
        if "record" in each.metadata:
            given[each.name] = _filled(each.metadata["record"], values)
        elif each.name in values:
            value = values[each.name]
            given[each.name] = tuple(value) if isinstance(value, list) else value
    return record(**given)


def number(allowed: Number) -> Callable[[str], int]:
    """Return a parser for whole numbers in `allowed`."""

    def read(word: str) -> int:
        if not re.fullmatch("-?[0-9]{1,10}", word) or int(word) not in allowed:
            raise argparse.ArgumentTypeError(f"write a whole number {allowed.values}, not '{word}'")
        return int(word)

    return read


def show(usage: str, text: str, boxes: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Print the help: the usage, a text, and boxes. A box has a title and rows of a name and its meaning."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Padding(Text.assemble(("Usage: ", "bold yellow"), (usage, "bold")), 1))
    for paragraph in paragraphs(text):
        if "\n" in paragraph:
            console.print(Text(indent(paragraph, " ")), soft_wrap=True)  # lines to be copied: not wrapped
            console.print()
        else:
            console.print(Padding(Text(paragraph), (0, 1, 1, 1)))
    for title, rows in boxes.items():
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="bold cyan")
        for name, meaning in rows:
            table.add_row(name, Text(meaning))
        if rows:
            console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def _with_default(text: str, field: Field[Any]) -> str:
    """Return the help of an option, with its default added unless the help already says the default."""
    is_value = isinstance(field.default, str | Path | int) and not isinstance(field.default, bool)
    return f"{text} [default: {field.default}]" if is_value and "[default: " not in text else text


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring. Each is one line, or unchanged if some of its lines are indented."""
    written = inspect.cleandoc(text).split("\n\n")
    return [part if "\n " in part else " ".join(part.split()) for part in written]


COMMANDS = (
    *("run", "cases", "explain", "try", "repro", "hunt", "watch"),
    *("batch", "runs", "show", "export", "regrade", "diff", "compare"),
    *("similar", "calibrate", *["mend"] * (Path(__file__).parents[1] / "classroom" / "mending.py").is_file()),
    *("pack", "doctor", "schema", "completion"),
)
"""The commands, in the order of the help; a bundle for students has no `mend`. A command is a function, and its
docstring is the help. If it has options, it takes an object of its options class, such as `RunOptions` in the same
module."""

_IN = {
    "explain": "cases",
    "try": "cases",
    "calibrate": "cases",
    "repro": "hunt",
    "mend": "hunt",
    "watch": "run",
    "runs": "stored",
    "show": "stored",
    "export": "stored",
    "regrade": "batch",
    "diff": "compare",
    "similar": "compare",
    "pack": "install",
    "doctor": "install",
    "schema": "app",
    "completion": "app",
}
"""The modules of commands; a command not listed here has a module of its own name. Modules are imported when needed."""

_SHELLS = ("bash", "zsh", "tcsh")
_TEXT = "Grade programming assignments: what is right, what is wrong, why, and how many points it earns."


def app(words: Sequence[str]) -> ExitCode:
    """Run a command line and return the exit code. An error becomes one message; users see no traceback."""
    try:
        try:
            return _run(words)
        finally:
            sys.stdout.flush()  # Python's own flush at exit could only print an error
    except BrokenPipeError as error:
        if not drop_what_failed():
            return _broken(error)
        return ExitCode.READER_GONE  # such as `head`: that is no error
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
    """Whether the working directory was removed."""
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
    gc.freeze()  # these objects stay until the end, so no search for garbage needs to visit them
    gc.enable()
    return command(*[options] * (record is not NoOptions))


def _command(name: str) -> tuple[Callable[..., ExitCode], type[Any]]:
    """Return a command and the class of its options."""
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
