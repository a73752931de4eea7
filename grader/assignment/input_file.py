"""Read files that people write: text of limited size, and TOML, whose tables are read key by key.

Each mistake is reported with its line. Numbers of the assignment are written by name, in braces: `filled` replaces
{2*SLOTS+1} by its value.

Parsers of TOML and YAML need more than linear time for some inputs, so the size is checked before anything is parsed.
The messages of `tomllib` are for programmers. So only its position is used, and a sentence about the text at that
position says what to write instead.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from grader.core.case import Number
from grader.core.errors import MOST_SHOWN, FileProblem, InputError
from grader.core.sanitize import one_line

Refusal = Callable[[list[FileProblem]], InputError]
"""Makes the exception that reports the mistakes in one kind of file."""

_MOST_SHOWN = 60
_MOST_BITS = 128
_MOST_LETTERS = 60
"""The longest word for which a suggestion is searched: comparing takes time in proportion to both lengths."""

_MOST_BYTES = 256 << 10
"""The most bytes of a file. Every file of the project is smaller than a quarter of this limit."""

_MOST_PARTS = 16
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"^[ \t\[]*+(?:{_PART}\.[ \t]*+){{{_MOST_PARTS}}}", re.MULTILINE)
"""Matches a key with too many parts: for a.b.c.d = 1 the parser's time grows with the square of their number."""

_LINE = re.compile(r"[ \t]*+(?:(?P<open>\[+)(?P<table>[^\[\]]*+)\]|(?P<key>[^\s=\[#][^=]*+)=)")
_MOST_NAME = 200
_QUOTES_AND_BLANKS = str.maketrans("", "", "\"' \t")

_EXPRESSION = re.compile(r"""(?<!\{)\{(?=[^{}"]*(?:[A-Z]|\b[a-z]\b))([^{}"]{1,100})\}(?!\})""")
"""An expression contains a name in capitals or of one letter. JSON and a hint's names such as {call} do not match."""
_TOKENS = re.compile(r"(?:[A-Za-z_]\w*+|[0-9]{1,9}(?!\w)|//|[-+*%() ])++", re.ASCII)
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

_STATEMENT = re.compile(
    r"""[ \t]*+(?:(?P<table>\[[^#]*\])|(?P<key>[\w."'\- \t]*[\w"'])[ \t]*=[ \t]*(?P<long>'''|\"{3}|\[)?)"""
)
_ESCAPE = re.compile(r"\\(?:[uU][0-9a-fA-F]{0,8}|.)$")
"""An escape at the end of a text."""


def read_bytes(path: Path, most: int, error: Refusal) -> bytes:
    """Return the content of a file. Raises `error` if it cannot be read or has more than `most` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)  # a device such as /dev/zero never ends
    except OSError as failure:
        raise error([FileProblem(path, 1, f"cannot be read: {failure.strerror}")]) from None
    if len(content) > most:
        raise error([FileProblem(path, 1, f"is larger than {most >> 10} KB; is it the right file?")])
    return content


def read_text(path: Path, most: int, error: Refusal, *, advice: str = "") -> str:
    """Return the content as UTF-8 text with line feeds. Raises `error`, with `advice` if the content is not UTF-8."""
    content = read_bytes(path, most, error)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        raise error([FileProblem(path, line, f"is not UTF-8 text{advice}")]) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def short(value: object) -> str:
    """Return a value from a file for a message: text in quotes, long values shortened."""
    if isinstance(value, str):
        return f"'{cut(value)}'"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number with very many digits"  # Python refuses to convert it to text
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return str(value)


def cut(text: str) -> str:
    """Return text from a file for a message: on one line, and only the beginning of a long text."""
    return one_line(text) if len(text) <= _MOST_SHOWN else f"{one_line(text[:_MOST_SHOWN])}..."


def line_of(text: str, key: str, table: str = "", row: int | None = None) -> int:
    """Return the line of a key in a table, or in the whole file without `table`.

    Returns the line of the table if the key is missing, and 1 if the table is missing too. `row` is the index of a
    table [[TABLE]] among those of its name, from 0.
    """
    places, name = _places(text), ("[" if row is None else "[[") + _bare(table)
    if not table:
        return places.get(("", 0, _bare(key)), 1)
    return places.get((name, row or 0, _bare(key)), places.get((name, row or 0, ""), 1))


@lru_cache(maxsize=4)  # because a file may have thousands of mistakes
def _places(text: str) -> dict[tuple[str, int, str], int]:
    """Map (table, index, key) to the line of the key. `table` is like "[a" or "[[a"; `index` counts equal tables.

    The key "" gives the line of the table itself. With the table "", a key gives its first line in any table.
    """
    places: dict[tuple[str, int, str], int] = {}
    count: Counter[str] = Counter()
    table, row = "", 0
    for number, line in enumerate(text.split("\n"), start=1):
        match = _LINE.match(line)
        if match is not None and match["key"] is not None:
            for where in ((table, row), ("", 0)):
                places.setdefault((*where, _bare(match["key"])), number)
        elif line.lstrip(" \t").startswith("["):
            table = match["open"] + _bare(match["table"]) if match is not None else "["
            row = count[table]
            count[table] += 1
            places[table, row, ""] = number
    return places


def _bare(name: str) -> str:
    """Return a name without its quotes and without blanks around its dots."""
    return name[:_MOST_NAME].translate(_QUOTES_AND_BLANKS)


def _syntax_mistake(text: str, failure: ValueError) -> tuple[int, str]:
    """Return the line of a mistake, and what to write instead."""
    import tomllib  # noqa: PLC0415 - most runs need no TOML, because its content is stored

    if text.startswith("\ufeff"):
        return 1, "the file begins with a byte order mark; save it as UTF-8 without one"
    lines = text.split("\n")
    place = re.search(r"line (\d+), column (\d+)\)$", str(failure))
    if place is None:  # something is not closed: its opening quotes are the last of their kind
        code = re.sub(r"(?m)^[ \t]*#.*", "", text)
        opening = next((mark for mark in ("'''", '"""', "'") if code.count(mark) % 2), "")
        line = (
            code.count("\n", 0, code.rfind(opening)) + 1
            if opening
            else _statement(lines, text.rstrip().count("\n") + 1)[0]
        )
        return line, "what begins here does not end; add its closing quotes or bracket"
    line, column = int(place[1]), int(place[2])
    start, name = _statement(lines, line)
    with suppress(ValueError, RecursionError):  # a statement that is right alone contradicts an earlier one
        tomllib.loads("\n".join(lines[start - 1 : line]))
        return start, f"{name} is defined twice, or adds to a value that is complete; write all of it in one place"
    before, at = "\n".join([*lines[start - 1 : line - 1], lines[line - 1][: column - 1]]), lines[line - 1][column - 1 :]
    return line, _what_to_write(before, at)


def _statement(lines: list[str], end: int) -> tuple[int, str]:
    """Return the first line of the statement that ends in line `end`, and what the statement defines."""
    opening = next((quotes for quotes in ("'''", '"""') if quotes in lines[end - 1]), "[")
    for line in range(end, 0, -1):
        match = _STATEMENT.match(lines[line - 1])
        if match is not None and (line == end or match["long"] == opening):
            return line, f"the table {cut(match['table'])}" if match["table"] else f"the key {cut(match['key'])}"
    return end, "a key"


def _what_to_write(before: str, at: str) -> str:
    """Return how to correct a wrong statement: `before` is its text up to the mistake, `at` the rest of the line."""
    if at and at[0] != "\t" and not at[0].isprintable():
        return "there is an invisible character in this line; remove it"
    if '"' in before and _ESCAPE.search(before, max(0, len(before) - 10)):
        return (
            r"a backslash in double quotes starts an escape such as \n; write \\ for a backslash, or the text in '...'"
        )
    if before.partition("=")[2].lstrip().startswith(("[", "{")):
        return "write a list as [1, 2], and keys in braces as { a = 1, b = 2 }: on one line, once each, no final comma"
    if "=" in before:
        return (
            "write one value: text in quotes (three for several lines), a number without leading zeros, true or false"
        )
    return "write KEY = VALUE, [TABLE] or [[TABLE]]; names of more than letters, digits, - and _ need quotes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """The values of one table. Each method reads one key; if its value is wrong, it adds a mistake to `problems`."""

    path: Path
    text: str
    """The text of the whole file."""
    values: dict[str, Any]
    problems: list[FileProblem]
    """The mistakes in the whole file."""
    name: str = ""
    """The name of the table; empty for the keys before the first table."""
    row: int | None = None
    """The index of a table [[NAME]] among those of its name, from 0."""
    error: Refusal
    """Makes the exception that reports the mistakes."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """The numbers that the file may use by name, in braces."""

    @classmethod
    def read(cls, path: Path, error: Refusal, constants: Mapping[str, int] | None = None) -> TomlTable:
        """Return the table of a whole file. Its texts may name `constants` in braces.

        Raises `error` with path and line if the file cannot be read or is not TOML.
        """
        import tomllib  # noqa: PLC0415 - most runs need no TOML, because its content is stored

        text = read_text(path, _MOST_BYTES, error)
        line = 1
        try:
            if long := _LONG_KEY.search(text):
                line = text.count("\n", 0, long.start()) + 1
                message = f"has a key of more than {_MOST_PARTS} parts; use a shorter one"
            else:
                values = tomllib.loads(text)
                return cls(path=path, text=text, values=values, problems=[], error=error, constants=constants or {})
        except tomllib.TOMLDecodeError as failure:
            line, message = _syntax_mistake(text, failure)
        except ValueError:  # Python converts no number of more than 4300 digits
            message = "has a number with thousands of digits"
        except RecursionError:
            message = "is nested too deeply"
        raise error([FileProblem(path, line, message)])

    def check(self) -> None:
        """Raise the exception for the mistakes of the whole file, sorted by line, if there are any."""
        if self.problems:
            raise self.error(sorted(self.problems, key=lambda problem: problem.line))

    def line_of(self, key: str) -> int:
        """Return the line to show for a mistake in this key."""
        return line_of(self.text, key, self.name, self.row)

    def complain(self, key: str, message: str) -> None:
        """Add a mistake to `problems`, with the line of the key."""
        self.complain_at(self.line_of(key), message)

    def complain_at(self, line: int, message: str) -> None:
        """Add a mistake in this line to `problems`."""
        self.problems.append(FileProblem(self.path, line, message))

    def check_keys(self, known: Collection[str]) -> None:
        """Report every key that is not in `known`."""
        for key in self.values:
            if key not in known:
                self.complain(key, f"unknown key {short(self._full(key))}{self.hint(key, known)}")

    def string(self, key: str, wanted: str) -> str:
        """Return the text of a required key. If it is missing, blank or not text, report that and return ""."""
        value = self.values.get(key)
        if isinstance(value, str) and value.strip():
            return value
        mistake = "is missing" if value is None else "is empty" if isinstance(value, str) else "must be text in quotes"
        self.complain(key, f"{self._full(key)} {mistake}: write {key} = {wanted}")
        return ""

    def sentence(self, key: str, wanted: str) -> str:
        """Return the text of a required key, with its expressions replaced by their values."""
        return self.filled(key, self.string(key, wanted))

    def filled(self, key: str, text: str) -> str:
        """Do what the function `filled` does. If an expression is wrong, report it and return ""."""
        try:
            return filled(text, self.constants)
        except ValueError as error:
            self.complain(key, str(error))
            return ""

    def choice(self, key: str, allowed: Collection[str], default: str = "") -> str:
        """Return the word of a key. If it is not in `allowed`, or missing without `default`, report this; return ""."""
        value, full = self.values.get(key, default or None), self._full(key)
        if isinstance(value, str) and value in allowed:
            return value
        mistake = f"unknown {full} {short(value)}" if isinstance(value, str) else f"{full} must be text in quotes"
        mistake = f"{full} is missing" if value is None else mistake
        self.complain(key, mistake + (self.hint(value, allowed) or _one_of(allowed)))
        return ""

    def words(self, key: str, allowed: Collection[str] | None = None, example: str = "") -> frozenset[str]:
        """Return the words of a list, which may be missing. Each must be in `allowed`, if that is given."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
            example = example or next(iter(allowed or ()), "")
            self.complain(key, f'{self._full(key)} must be a list of words such as ["{example}"]')
            return frozenset()
        for word in value:
            if allowed is not None and word not in allowed:
                hint = self.hint(word, allowed) or _one_of(allowed)
                self.complain(key, f"unknown word {short(word)} in {self._full(key)}{hint}")
        return frozenset(value)

    def number(self, key: str, number: Number, *, needed: bool = False) -> int | None:
        """Return a whole number that `number` allows; None if the key is missing. Report other values and return None.

        A text with an expression in braces is a number too. A missing key is reported if it is `needed`.
        """
        value = self.values.get(key)
        if isinstance(value, str) and self.constants and _EXPRESSION.fullmatch(value):
            if not (text := self.filled(key, value)):
                return None
            value = int(text)
        if value is None and not needed:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value not in number:
            demand = "is missing: it must be" if value is None else "must be"
            shown = "" if value is None else f", not {short(value)}"
            self.complain(key, f"{self._full(key)} {demand} a whole number {number.values}{shown}")
            return None
        return value

    def switch(self, key: str) -> bool:
        """Return whether the key is true; False if it is missing."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            self.complain(key, f"{self._full(key)} must be true or false, not {short(value)}")
        return value is True

    def tables(self, key: str) -> dict[str, TomlTable]:
        """Return the tables [KEY.NAME] by their names."""
        inner = self.values.get(key, {})
        if not isinstance(inner, dict) or not all(isinstance(values, dict) for values in inner.values()):
            self.complain(key, f"{self._full(key)} must contain only tables: write [{self._full(key)}.NAME]")
            return {}
        return {name: replace(self, values=values, name=f"{self._full(key)}.{name}") for name, values in inner.items()}

    def rows(self, key: str) -> list[TomlTable]:
        """Return the tables [[KEY]], in their order."""
        inner = self.values.get(key, [])
        if not isinstance(inner, list) or not all(isinstance(values, dict) for values in inner):
            line, full = line_of(self.text, "", key) if isinstance(inner, dict) else self.line_of(key), self._full(key)
            self.complain_at(line, f"{full} must contain only tables: write [[{full}]] above each")
            return []
        return [replace(self, values=values, name=self._full(key), row=row) for row, values in enumerate(inner)]

    def hint(self, word: object, known: Collection[str]) -> str:
        """Return a suggestion if the mistake will be shown; else "", because finding a suggestion takes long."""
        return suggestion(word, known) if isinstance(word, str) and len(self.problems) < MOST_SHOWN else ""

    def _full(self, key: str) -> str:
        return f"{cut(self.name)}.{key}" if self.name else key


def filled(text: str, numbers: Mapping[str, int]) -> str:
    """Return the text with each expression, such as {2*SLOTS+1}, replaced by its value.

    An expression contains names of `numbers`. Without any `numbers`, braces stay as they are. Raises `ValueError` with
    a message that says what is wrong with an expression.
    """
    return _EXPRESSION.sub(lambda match: str(_value(match[1], numbers)), text) if numbers else text


def _value(expression: str, numbers: Mapping[str, int]) -> int:
    try:
        return _computed(_parsed(expression), numbers)
    except KeyError as error:
        (name,) = error.args
        mistake = f"there is no {name}{suggestion(name, numbers) or _one_of(numbers)}"
    except ZeroDivisionError:
        mistake = "it divides by 0"
    except SyntaxError:
        mistake = "write names and whole numbers with + - * // % and parentheses"
    raise ValueError(f"{{{cut(expression)}}} has no value: {mistake}")


@lru_cache(maxsize=256)
def _parsed(expression: str) -> ast.expr:
    """Return the tree of an expression. Cached, because `repeat` computes one expression for many values."""
    if not _TOKENS.fullmatch(expression):
        raise SyntaxError
    return ast.parse(expression.strip(), mode="eval").body


def _computed(node: ast.expr, numbers: Mapping[str, int]) -> int:
    if isinstance(node, ast.Name):
        return numbers[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_computed(node.operand, numbers)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_computed(node.left, numbers), _computed(node.right, numbers))
    raise SyntaxError


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a question with a similar known word, to append to a message; "" if no known word is similar."""
    import difflib  # noqa: PLC0415 - only mistakes need it

    close = difflib.get_close_matches(word, list(known), n=1) if len(word) <= _MOST_LETTERS else []
    return f" (did you mean {close[0]}?)" if close else ""


def _one_of(allowed: Collection[str]) -> str:
    """Return all allowed words, to append to a message."""
    return f"; one of: {', '.join(allowed)}"
