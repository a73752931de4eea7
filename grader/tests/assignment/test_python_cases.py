"""Case files of labs with Python submissions: words, JSON values, error classes, random traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.assignment.case_files import load
from grader.core.case import Case, Generated
from grader.core.errors import CaseFileError
from grader.core.model import play
from grader.tests.support.toy_lab import lab
from reference.operation import Trace

_HEAD = 'title = "t"\nhandout = "Part 1/order"\nvisibility = "public"\n'
_RULE, _NO_RULE = 'rule = "taking"\n', "# random traces have no rule\n"


def loaded(folder: Path, text: str) -> Case:
    """The case with this text below its header."""
    path = folder / "case.toml"
    is_random = "seeds" in text or "length" in text
    path.write_text(_HEAD + (_NO_RULE if is_random else _RULE) + text, encoding="utf-8")
    return load(path, lab().grammar, seed=1)


def problems(folder: Path, text: str) -> list[str]:
    """What is wrong with it, `line: message` each."""
    with pytest.raises(CaseFileError) as caught:
        loaded(folder, text)
    return [line.removeprefix(f"{folder / 'case.toml'}:") for line in str(caught.value).splitlines()]


def traced(*lines: str) -> str:
    """Operations below the construction of a shelf."""
    return "operations = '''\n" + "\n".join(["shelf 4 -> null", "take 1 -> [0]", *lines]) + "\n'''\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("find 3 -> null", "word of find must be a word of letters, digits, - and _, not '3'"),
        ("find null -> null", "word of find must be a word"),
        ("take 9 -> KeyError", "take cannot return 'KeyError'; write -> ValueError or JSON without spaces behind ->"),
        ("give {} -> null", "boxes of give must be a list of numbers such as [1,2], not '{}'"),
        ("usage -> NaN", "usage cannot return 'NaN'; write JSON without spaces behind ->"),
        ("take 9 -> [0]", "claims [0], the reference returns ValueError (Part 1/enough)"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, line: str, says: str) -> None:
    """With its line."""
    (message,) = problems(tmp_path, traced(line))

    assert message.startswith("8: ")
    assert says in message


def test_random_traces_repeat(tmp_path: Path) -> None:
    """A seed names a trace; the digest is that of what the reference does in it."""
    generated = loaded(tmp_path, 'seeds = "3..5"\nlength = 7\n').generated

    assert generated is not None
    assert generated == loaded(tmp_path, 'seeds = "3..5"\nlength = 7\n').generated
    assert [len(trace) for trace in generated.traces] == [7, 7, 7]
    assert len(set(generated.digests)) == 3
    trace = Trace(operations=generated.traces[1])
    assert Generated.digest(step.record for step in play(lab().model(trace), trace)) == generated.digests[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('seeds = "5..1"\nlength = 7\n', '5: seeds cannot be read: write seeds = "1..1000", at most 5000 of them'),
        ('seeds = "1..9999"\nlength = 7\n', "5: seeds cannot be read"),
        ("seeds = 3\nlength = 7\n", "5: seeds cannot be read"),
        ('rule = "taking"\nseeds = "1..3"\nlength = 7\n', "5: random traces have no rule"),
        ('seeds = "1..3"\n', "length is missing: it must be a whole number from 1 to 500"),
        ("length = 3\n", "seeds is missing: write seeds = "),
        ('seeds = "1..3"\nlength = 0\n', "6: length must be a whole number from 1 to 500, not 0"),
        ('seeds = "1..3"\nlength = 7\noperations = ""\n', "7: write either operations, or seeds and length"),
    ],
)
def test_wrong_random_traces_are_told(tmp_path: Path, text: str, says: str) -> None:
    """With what to write instead."""
    assert says in "\n".join(problems(tmp_path, text))
