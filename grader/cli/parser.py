"""The options of a command, as a record: argparse's parser, the help and the completion are made of its fields.

A command's record is a frozen data class. A field of it carries an option or an argument, or is a record of options
that several commands share:

    jobs: int = option("--jobs", "N", "So many at once.", default=1, type=number(Number("jobs", 1, 64)))

The command-line library that was used before checks values with pydantic; the two took 1.4 times as long for one
command line as gcc takes for a submission.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from textwrap import indent
from typing import Any, Generic, NoReturn, TypeVar

from grader.assignment.input_file import suggestion
from grader.core.case import Number
from grader.core.errors import UsageError

T = TypeVar("T")

Offer = Callable[[], Iterable[str]]
"""Returns the possible values. It is called only when they are needed, as for shell completion."""

HELP = "Show this message and exit."


def option(name: str, metavar: str, text: str, *, default: Any = None, offer: Offer | None = None, **how: Any) -> Any:
    """Return a field for an option with a value; `how` as in argparse, `offer` returns the values for completion."""
    return _declared((name,), offer, default=default, metavar=metavar, help=text, **how)


def path_option(name: str, metavar: str, text: str, *, default: Path | None = None) -> Any:
    """Return a field for an option whose value is a path."""
    return option(name, metavar, text, default=default, type=Path)


def repeated(name: str, metavar: str, text: str, **how: Any) -> Any:
    """Return a field for an option that may be written several times: the tuple of its values."""
    return _declared((name,), default=(), metavar=metavar, help=text, action="append", **how)


def flag(name: str, text: str) -> Any:
    """Return a field for an option without a value: whether it is written."""
    return _declared((name,), default=False, help=text, action="store_true")


def argument(metavar: str, text: str, *, offer: Offer | None = None, **how: Any) -> Any:
    """Return a field for a positional argument; it is None where nargs="?" allows to omit it."""
    default = {"default": None} if how.get("nargs") == "?" else {}
    return _declared((), offer, metavar=metavar, help=text, **how, **default)


def shared(kind: type[Any]) -> Any:
    """Return a field for a record of options that several commands share."""
    return field(default_factory=kind, metadata={"record": kind})


def _declared(names: tuple[str, ...], offer: Offer | None = None, **how: Any) -> Any:
    default = {"default": how.pop("default")} if "default" in how else {}
    return field(**default, metadata={"names": names, "offer": offer, "how": how})


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The record of a command without options and arguments."""


def declared(record: type[Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any], Field[Any]]]:
    """Yield the fields of a record and of the records in it, each with names and keywords for argparse.

    A value that is not written is left to the record's own default.
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
    """Reads the words of one command into its record; `text` is its description for the help, examples indented."""

    def __init__(self, name: str, text: str, record: type[T]) -> None:
        self._name, self._text, self._record = name, text, record
        self._argument_reader, self._option_reader = _Strict(name, "\0"), _Strict(name, "-")
        for names, how, each in declared(record):
            (self._option_reader if each.metadata["names"] else self._argument_reader).add_argument(*names, **how)
        self._option_reader.add_argument("-h", "--help", action="store_true")

    def read(self, words: Sequence[str]) -> T:
        """Return the record. Options and arguments stand in any order; after `--` nothing is an option.

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
    """Return the record, and the records in it, with these values; lists become tuples."""
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
    """Print the help: the usage, a text, and boxes, which map titles to rows of a name and its meaning."""
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
    """Return the help of an option with its default, unless the help says it."""
    is_value = isinstance(field.default, str | Path | int) and not isinstance(field.default, bool)
    return f"{text} [default: {field.default}]" if is_value and "[default: " not in text else text


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a docstring: each as one line, or unchanged when some of its lines are indented."""
    written = inspect.cleandoc(text).split("\n\n")
    return [part if "\n " in part else " ".join(part.split()) for part in written]
