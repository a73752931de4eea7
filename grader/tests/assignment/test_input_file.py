"""A slip in the syntax of a TOML file is told with its line and with what to write instead."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from grader.assignment import input_file
from grader.core.errors import RubricError
from grader.tests.support.command import ROOT

_REAL = (
    (ROOT / "cases" / "paged_kv" / "rubric.toml").read_text(encoding="utf-8"),
    (ROOT / "cases" / "paged_kv" / "append" / "first_append_after_fork_copies.toml").read_text(encoding="utf-8"),
)


def mistake(folder: Path, text: str) -> str:
    """Return line and message for this text; "" when it is TOML."""
    path = folder / "rubric.toml"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        input_file.TomlTable.read(path, RubricError)
    except RubricError as error:
        (problem,) = error.problems
        assert 1 <= problem.line <= max(1, len(text.splitlines()))
        return f"{problem.line}: {problem.message}"
    return ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[rules.x]\na = 1\n\n[rules.x]\nb = 2\n",
            "4: the table [rules.x] is defined twice, or adds to a value that is complete; write all",
        ),
        ("[[a]]\nx = 1\n[a]\ny = 1\n", "3: the table [a] is defined twice"),
        ("a = 1\n[a]\nb = 2\n", "2: the table [a] is defined twice"),
        ("a.b = 1\n[a]  # [more]\nc = 2\n", "2: the table [a] is defined twice"),
        ("a = 1\nb = 2\na = 3\n", "3: the key a is defined twice, or adds to a value"),
        ("[a.b]\nx = 1\n[a]\nb = 2\n", "4: the key b is defined twice"),
        ("a = 1\na.b = 2\n", "2: the key a.b is defined twice"),
        ("a = '''\nx\n'''\na = '''\ny = [1]\nz\n'''\n", "4: the key a is defined twice"),
        ("a = [\n1,\n]\na = [\n1,\n2\n]\n", "4: the key a is defined twice"),
        (
            "a = {x = 1, x = 2}\n",
            "1: write a list as [1, 2], and keys in braces as { a = 1, b = 2 }: on one line, once each",
        ),
        ("a = {x = 1}\na.y = 2\n", "2: the key a.y is defined twice, or adds to a value that is complete"),
        ("a = []\n[[a]]\nx = 1\n", "2: the table [[a]] is defined twice, or adds to a value that is complete"),
        (
            'a = "x\\y"\n',
            "1: a backslash in double quotes starts an escape such as \\n; write \\\\ for a backslash",
        ),
        ('a = """\nb\n\\q"""\n', "3: a backslash in double quotes starts an escape"),
        ('a = "C:\\users"\n', "1: a backslash in double quotes starts an escape"),
        ('a = 1\nb = "abc\nc = 1\n', "2: write one value: text in quotes (three for several lines), a number"),
        ("a = 1\nb = 'abc\nc = 1\n", "2: what begins here does not end; add its closing quotes or bracket"),
        ('a = 1\nb = """abc\nc = 1\n', "2: what begins here does not end"),
        ('a = 1\nb = """abc\n"c" = 1\n', "2: what begins here does not end"),
        ('a = """x"""\nb = "abc', "2: what begins here does not end"),
        ("a = '''x'''\nb = '''abc\nc = 1\n", "2: what begins here does not end"),
        ("b = 1\na = [1, 2\n# it's open\n", "2: what begins here does not end"),
        ("a = [1, 2\n", "1: what begins here does not end; add its closing quotes or bracket"),
        ("a = {x = 1\n", "1: write a list as [1, 2], and keys in braces as"),
        ("a = {x = 1,\n y = 2}\n", "1: write a list as [1, 2], and keys in braces as"),
        (
            "title = first append\n",
            "1: write one value: text in quotes",
        ),
        ("a = 2020-02-30\n", "1: write one value: text in quotes"),
        (
            "a = 05\n",
            "1: write one value: text in quotes (three for several lines), a number without leading zeros",
        ),
        ("a: 1\n", "1: write KEY = VALUE, [TABLE] or [[TABLE]]; names of more than letters, digits, - and _ need"),
        ("[rules\n", "1: write KEY = VALUE, [TABLE] or [[TABLE]]"),
        ("[[rules]\n", "1: write KEY = VALUE, [TABLE] or [[TABLE]]"),
        ('{"a": 1}\n', "1: write KEY = VALUE, [TABLE] or [[TABLE]]"),
        ("a = 'x\x01'\n", "1: there is an invisible character in this line; remove it"),
        ("a = 1\n\n\x0c", "3: there is an invisible character"),
        ("a =\u00a01\n", "1: there is an invisible character"),
        ('a = "\\U00110000"\n', "1: a backslash in double quotes starts an escape"),
        ("\ufeffa = 1\n", "1: the file begins with a byte order mark; save it as UTF-8 without one"),
    ],
)
def test_each_slip_has_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    """In the user's words, not in those of a parser."""
    assert mistake(tmp_path, text).startswith(message)


def test_no_slip_is_told_in_the_words_of_the_parser(tmp_path: Path) -> None:
    """Whatever characters or lines of a real file are lost, doubled, or swapped."""
    chance = random.Random(7)
    messages = set()
    for _ in range(1500):
        text = chance.choice(_REAL)
        for _ in range(chance.randint(1, 3)):
            at, length = chance.randrange(len(text)), chance.choice((1, 1, 1, 3, 80))
            put = chance.choice(("", text[at : at + 2 * length], chance.choice("\"'\\[]{}=,.#\n x0\x07")))
            text = text[:at] + put + text[at + length :]
        messages.add(mistake(tmp_path, text).partition(": ")[2])

    assert len({re.sub(r"the (key|table) .* is defined", "", message) for message in messages}) >= 7
    assert not re.search(r"tomllib|Expected|Invalid|Unclosed|Cannot|at line", " ".join(messages))
