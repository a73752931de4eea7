"""The options and arguments of a command: in any order, parsed to typed values.

argparse parses them. The command-line library that was used before checks values with pydantic; the two took 1.4 times
as long for one command line as gcc takes for a submission.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from grader.assignment.input_file import suggestion
from grader.core.case import Number
from grader.core.errors import UsageError

Offer = Callable[[], Iterable[str]]
"""Returns the possible values. It is called only when they are needed, as for shell completion."""

HELP = "Show this message and exit."


class _Strict(argparse.ArgumentParser):
    def __init__(self, name: str, prefix: str) -> None:
        super().__init__(prog=name, prefix_chars=prefix, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} -h` shows what may be written")


class Parser:
    """The options and arguments of one command; `text` is its description for the help, examples indented."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._argument_reader, self._option_reader = _Strict(name, "\0"), _Strict(name, "-")
        self._arguments: list[argparse.Action] = []
        self._options: list[argparse.Action] = []
        self._declared: list[tuple[tuple[str, ...], dict[str, Any], Offer | None]] = []

    def argument(self, name: str, *, offer: Offer | None = None, **how: Any) -> None:
        """Declare a positional argument; `how` as in argparse, `offer` returns the values for shell completion."""
        self._declared.append(((name,), how, offer))
        self._arguments.append(self._argument_reader.add_argument(name, **how))

    def option(self, *names: str, offer: Offer | None = None, **how: Any) -> None:
        """Declare an option; `how` as in argparse, `offer` returns the values for shell completion."""
        self._declared.append((names, how, offer))
        self._options.append(self._option_reader.add_argument(*names, **how))

    def declared(self) -> Iterator[tuple[tuple[str, ...], dict[str, Any], Offer | None]]:
        """Yield each declaration: names, keywords for argparse, and the values for shell completion."""
        yield from self._declared

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the values by the names of options and arguments; after `--` nothing is an option.

        Raises `UsageError`. With --help it shows the help and exits.
        """
        self.option("-h", "--help", action="store_true", help=HELP)
        end = words.index("--") if "--" in words else len(words)
        values, rest = self._option_reader.parse_known_args(words[:end])
        if values.help:
            self._show_help()
            sys.exit()
        del values.help
        known = [name for option in self._options for name in option.option_strings]
        for word in rest:
            if word.startswith("-") and word != "-":
                self._option_reader.error(f"there is no option {word}{suggestion(word, known)}")
        return vars(self._argument_reader.parse_args([*rest, *words[end + 1 :]], values))

    def _show_help(self) -> None:
        from grader.cli.help import show

        written = [
            f"{argument.metavar}" if argument.required else f"[{argument.metavar}]" for argument in self._arguments
        ]
        usage = " ".join([self._name, "[OPTIONS]", *written])
        arguments = [(f"{argument.metavar}", f"{argument.help}") for argument in self._arguments]
        show(usage, self._text, {"Arguments": arguments, "Options": [_shown(option) for option in self._options]})


def number(allowed: Number) -> Callable[[str], int]:
    """Return a parser for whole numbers in `allowed`."""

    def read(word: str) -> int:
        if not re.fullmatch("-?[0-9]{1,10}", word) or int(word) not in allowed:
            raise argparse.ArgumentTypeError(f"write a whole number {allowed.values}, not '{word}'")
        return int(word)

    return read


def _shown(option: argparse.Action) -> tuple[str, str]:
    """Return an option with its value, and its help text."""
    name = ", ".join(option.option_strings) + (f" {option.metavar}" if option.metavar else "")
    default = f" [default: {option.default}]" if isinstance(option.default, str) else ""
    return name, f"{option.help}{default}"
