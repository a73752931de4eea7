"""Read files that people write: bounded text, the values of TOML with the line of each mistake, and tables key by key.

A number of the assignment is written by its name, in braces: `filled` replaces {2*SLOTS+1} by its value.

Parsers of TOML and YAML need more than linear time for some inputs, so the size is bounded before anything is parsed.
The messages of `tomllib` are for programmers, and some tell where it gave up, which is not the line of the mistake; so
each has a sentence here that says what to write instead.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from grader.core.case import Number
from grader.core.errors import MOST_SHOWN, FileProblem, InputError
from grader.core.sanitize import one_line

Refusal = Callable[[list[FileProblem]], InputError]
"""The exception for the mistakes of a kind of file."""

_MOST_SHOWN = 60
_MOST_BITS = 128
_MOST_LETTERS = 60
"""The longest word that is looked up: the time to compare two words grows with the product of their lengths."""

_MOST_BYTES = 256 << 10
"""Every file of the project is smaller than a quarter of this."""

_MOST_PARTS = 16
_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"^[ \t\[]*+(?:{_PART}\.[ \t]*+){{{_MOST_PARTS}}}", re.MULTILINE)
"""For a key such as a.b.c.d = 1 the parser's time and memory grow with the square of the number of parts."""

_LINE = re.compile(r"[ \t]*+(?:(?P<open>\[+)(?P<table>[^\[\]]*+)\]|(?P<key>[^\s=\[#][^=]*+)=)")
_MOST_NAME = 200
_QUOTES_AND_BLANKS = str.maketrans("", "", "\"' \t")

_BACKSLASH = r"write \\ for a backslash, or the text in '...'"
_VALUE = "put text in quotes, or write a number without leading zeros, true or false"
_UNCLOSED = "the text that begins here does not end; add its closing quotes"

_SENTENCES = (
    (r"Cannot (overwrite|declare)", "{name} is defined twice; write it once{whole}"),
    (
        r"Duplicate inline table key '?(?P<key>[^']*)",
        "the key {key} is defined twice between the braces; write it once",
    ),
    (r"Cannot (mutate|redefine)", "{name} adds to a value that is already complete; write all of it in one place"),
    (
        r"Unescaped",
        rf"a backslash in double quotes starts an escape such as \n, and this is not a valid one; {_BACKSLASH}",
    ),
    (r"Invalid hex|Escaped", rf"\u and \U need the 4 or 8 hexadecimal digits of a character; {_BACKSLASH}"),
    (r"Illegal character '\\n'", "text in quotes must end on its line; put text of several lines in three quotes"),
    (r"(Illegal|Found invalid) character", "there is a control character in this line; remove it"),
    (r"Unterminated", _UNCLOSED),
    (r"Expected ['\"]'", _UNCLOSED),
    (r"Unclosed array", "a list does not end, or lacks a comma between two values; write it as [1, 2]"),
    (r"Unclosed inline", "a brace is not closed on its line, or a comma is missing; write {{ a = 1, b = 2 }}"),
    (r"Invalid initial", "a name is expected here; a table in braces is one line without a final comma"),
    (r"Invalid value", f"what follows the equals sign is not a value; {_VALUE}"),
    (r"Invalid date", f"there is no such date; {_VALUE}"),
    (r"Expected '='", "write KEY = VALUE; a key needs quotes if it has more than letters, digits, - and _"),
    (r"Expected newline", f"a line can hold only one value, or one [TABLE]; {_VALUE}"),
    (r"Expected '\]\]'", "the name of the table does not end; write [[NAME]]"),
    (r"Expected '\]'", "the name of the table does not end; write [NAME]"),
    (r"Invalid statement", "this is neither KEY = VALUE nor [TABLE]; a comment begins with #"),
)
"""The sentences for the messages of `tomllib`, by their beginnings. `name` is the key or the table of the statement."""

_EXPRESSION = re.compile(r"""(?<!\{)\{(?=[^{}"]*(?:[A-Z]|\b[a-z]\b))([^{}"]{1,100})\}(?!\})""")
"""It has a name in capitals, or of one letter; so the other names of a hint, and objects of JSON, are none."""
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


def read_bytes(path: Path, most: int, error: Refusal) -> bytes:
    """Return the content of a file. Raises `error` when it cannot be read or has more than `most` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)  # a device such as /dev/zero never ends
    except OSError as failure:
        raise error([FileProblem(path, 1, f"cannot be read: {failure.strerror}")]) from None
    if len(content) > most:
        raise error([FileProblem(path, 1, f"is larger than {most >> 10} KB; is it the right file?")])
    return content


def read_text(path: Path, most: int, error: Refusal, *, advice: str = "") -> str:
    """Return the content as UTF-8 text whose lines end in a line feed. If it is not UTF-8, the error adds `advice`."""
    content = read_bytes(path, most, error)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as failure:
        line = content.count(b"\n", 0, failure.start) + 1
        raise error([FileProblem(path, line, f"is not UTF-8 text{advice}")]) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def short(value: object) -> str:
    """Return a value from a file as a message shows it: text in quotes, long values shortened."""
    if isinstance(value, str):
        return f"'{cut(value)}'"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "a number with very many digits"  # Python refuses to convert it to text
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return str(value)


def cut(text: str) -> str:
    """Return text from a file as a message shows it: in one line, and only its beginning when it is long."""
    return one_line(text) if len(text) <= _MOST_SHOWN else f"{one_line(text[:_MOST_SHOWN])}..."


def line_of(text: str, key: str, table: str = "", row: int | None = None) -> int:
    """Return the line of a key, in a table when one is named; for a missing key the table's line, else the first.

    `row` counts the tables [[TABLE]] of one name, from 0.
    """
    places = _places(text)
    if not table:
        return places.anywhere.get(_bare(key), 1)
    headers = places.headers.get(("[" if row is None else "[[") + _bare(table), ())
    if len(headers) <= (row or 0):
        return 1
    header = headers[row or 0]
    return places.within.get((header, _bare(key)), header)


class _Places(NamedTuple):
    """The lines of all tables and keys of a file, computed once, because a file may have thousands of mistakes."""

    headers: dict[str, list[int]]
    """The lines of tables, by their opening brackets and names."""
    within: dict[tuple[int, str], int]
    """The lines of keys, by the line of their table (0: before the first) and their names."""
    anywhere: dict[str, int]


@lru_cache(maxsize=4)
def _places(text: str) -> _Places:
    places = _Places({}, {}, {})
    header = 0
    for number, line in enumerate(text.split("\n"), start=1):
        match = _LINE.match(line)
        if match is not None and match["key"] is not None:
            key = _bare(match["key"])
            places.within.setdefault((header, key), number)
            places.anywhere.setdefault(key, number)
        elif line.lstrip(" \t").startswith("["):
            header = number
            if match is not None:
                places.headers.setdefault(match["open"] + _bare(match["table"]), []).append(number)
    return places


def _bare(name: str) -> str:
    """Return a name without its quotes and without blanks around its dots."""
    return name[:_MOST_NAME].translate(_QUOTES_AND_BLANKS)


def _syntax_mistake(text: str, failure: str) -> tuple[int, str]:
    """Return line and sentence for a message of `tomllib` about this text."""
    if text.startswith("\ufeff"):
        return 1, "the file begins with a byte order mark; save it as UTF-8 without one"
    lines = text.rstrip().split("\n")
    place = re.search(r"line (\d+)", failure)
    line = int(place[1]) if place is not None else len(lines)
    unclosed = re.match(r"Unterminated|Expected ['\"]('+)", failure)
    if place is None and unclosed is not None:  # nothing closes it, so these are the last quotes of their kind
        double = '"' if '"' in lines[-1] and not text.endswith("\n") else '"""'
        line = text.count("\n", 0, text.rfind(unclosed[1] or double)) + 1
    name = "a key"
    if failure.startswith("Cannot"):
        line, name = _statement(lines, line)
    whole = ", with all of its keys" if name.startswith("the table") else ""
    for message, sentence in _SENTENCES:
        if (match := re.match(message, failure)) is not None:
            return line, sentence.format(name=name, whole=whole, **match.groupdict())
    return line, f"is not TOML: {failure}"


def _statement(lines: list[str], end: int) -> tuple[int, str]:
    """Return the line in which the statement begins whose value ends in line `end`, and what it defines."""
    opening = next((quotes for quotes in ("'''", '"""') if quotes in lines[end - 1]), "[")
    for line in range(end, 0, -1):
        match = _STATEMENT.match(lines[line - 1])
        if match is not None and (line == end or match["long"] == opening):
            return line, f"the table {cut(match['table'])}" if match["table"] else f"the key {cut(match['key'])}"
    return end, "a key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """The values of one table; each method reads one key and adds to `problems` why it cannot."""

    path: Path
    text: str
    """The text of the whole file."""
    values: dict[str, Any]
    problems: list[FileProblem]
    """The mistakes in the whole file."""
    name: str = ""
    """"" for the keys before the first table."""
    row: int | None = None
    """The index of a table [[NAME]] among those of its name, from 0."""
    error: Refusal
    """Makes the exception for the mistakes."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """The numbers that texts and numbers of the file may name in braces."""

    @classmethod
    def read(cls, path: Path, error: Refusal, constants: Mapping[str, int] | None = None) -> TomlTable:
        """Return the whole file, which may name these constants.

        Raises `error` with path and line when it cannot be read or is not TOML.
        """
        import tomllib  # noqa: PLC0415 - most runs find what is in the files stored

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
            line, message = _syntax_mistake(text, str(failure))
        except ValueError:  # Python converts no number of more than 4300 digits
            message = "has a number with thousands of digits"
        except RecursionError:
            message = "is nested too deeply"
        raise error([FileProblem(path, line, message)])

    def check(self) -> None:
        """Raise the exception for the mistakes of the whole file, in the order of their lines, if there are any."""
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
        """Return the text of a key that must be there; "" when it is missing, blank or not text."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            mistake = (
                "is missing" if value is None else "is empty" if isinstance(value, str) else "must be text in quotes"
            )
            self.complain(key, f"{self._full(key)} {mistake}: write {key} = {wanted}")
            return ""
        return value

    def sentence(self, key: str, wanted: str) -> str:
        """Return the text of a key that must be there, with the values of its expressions in their places."""
        return self.filled(key, self.string(key, wanted))

    def filled(self, key: str, text: str) -> str:
        """Do what the function `filled` does; report a wrong expression in the line of the key, and return ""."""
        try:
            return filled(text, self.constants)
        except ValueError as error:
            self.complain(key, str(error))
            return ""

    def choice(self, key: str, allowed: Collection[str], default: str = "") -> str:
        """Return the word of a key, one of `allowed`; "" if it is none of them. Without a default it must be there."""
        value = self.values.get(key, default or None)
        if not isinstance(value, str) or value not in allowed:
            full = self._full(key)
            mistake = f"unknown {full} {short(value)}" if isinstance(value, str) else f"{full} must be text in quotes"
            self.complain(
                key,
                (f"{full} is missing" if value is None else mistake) + (self.hint(value, allowed) or _one_of(allowed)),
            )
            return ""
        return value

    def words(self, key: str, allowed: Collection[str] | None = None, example: str = "") -> frozenset[str]:
        """Return the words of a list, which may be missing; each must be one of `allowed`, where that is given."""
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
        """Return a whole number that `number` allows; None when it is missing or not allowed.

        It may be the text of an expression in braces.
        """
        value = self.values.get(key)
        expression = _EXPRESSION.fullmatch(value) if isinstance(value, str) and self.constants else None
        if expression is not None:
            try:
                value = _value(expression[1], self.constants)
            except ValueError as error:
                self.complain(key, str(error))
                return None
        if value is None and not needed:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value not in number:
            demand = "is missing: it must be" if value is None else "must be"
            shown = "" if value is None else f", not {short(value)}"
            self.complain(key, f"{self._full(key)} {demand} a whole number {number.values}{shown}")
            return None
        return value

    def switch(self, key: str) -> bool:
        """Whether the key is true; False when it is missing."""
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
            line = line_of(self.text, "", key) if isinstance(inner, dict) else self.line_of(key)
            self.complain_at(
                line, f"{self._full(key)} must contain only tables: write [[{self._full(key)}]] above each"
            )
            return []
        return [replace(self, values=values, name=self._full(key), row=row) for row, values in enumerate(inner)]

    def hint(self, word: object, known: Collection[str]) -> str:
        """Return a suggestion, but only for a mistake that will be shown: finding one takes long."""
        return suggestion(word, known) if isinstance(word, str) and len(self.problems) < MOST_SHOWN else ""

    def _full(self, key: str) -> str:
        return f"{cut(self.name)}.{key}" if self.name else key


def filled(text: str, numbers: Mapping[str, int]) -> str:
    """Return the text with the value of each expression in its place, such as {2*SLOTS+1}.

    An expression names some of `numbers`; where there are none, braces stay as they are. Raises `ValueError` with a
    message that says what is wrong with an expression.
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
    """Return the tree of an expression: `repeat` computes one expression for many values."""
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
    """Return a known word that is close to this one, as a question to append to a message; "" without one."""
    import difflib  # noqa: PLC0415 - only mistakes need it

    close = difflib.get_close_matches(word, list(known), n=1) if len(word) <= _MOST_LETTERS else []
    return f" (did you mean {close[0]}?)" if close else ""


def _one_of(allowed: Collection[str]) -> str:
    """Return all allowed words, to append to a message."""
    return f"; one of: {', '.join(allowed)}"
