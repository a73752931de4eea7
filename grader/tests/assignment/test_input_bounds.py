"""Files that nobody would write: each ends in a few lines, and the work for it does not grow beyond its size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.assignment import case_files, input_file
from grader.classroom import roster
from grader.core.errors import MOST_SHOWN, InputError
from grader.labs.paged_kv.lab import lab
from grader.tests.assignment.test_case_files import CREATED, HEADER


def case_text(operations: str, header: str = HEADER) -> str:
    """A case file."""
    return f"{header}operations = '''\n{CREATED}\n{operations}\n'''\n"


def read_case(path: Path) -> object:
    """As a command does."""
    return case_files.load(path, lab().grammar, seed=1)


def complaint(path: Path, content: str | bytes, read: Callable[[Path], object]) -> list[str]:
    """What is said of a file, without its path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read(path)
    lines = str(caught.value).splitlines()

    assert 0 < len(lines) <= MOST_SHOWN + 1
    assert all(line.startswith(f"{path}:") and len(line) < len(str(path)) + 600 for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]


@pytest.mark.parametrize(
    ("content", "read", "says"),
    [
        (case_text("#" * 300_000), read_case, "1: is larger than 256 KB"),
        ("a" + ".a" * 2000 + " = 1\n", read_case, "1: has a key of more than 16 parts"),
        ("x = 1\n[a" + ".a" * 2000 + "]\n", read_case, "2: has a key of more than 16 parts"),
        ("weight = 0x" + "f" * 9000 + "\n" + case_text(""), read_case, "not a number with very many digits"),
        (case_text("").replace('"address"', "0x" + "f" * 9000), read_case, "rule must be text in quotes"),
        (case_text("x" * 499), read_case, "unknown operation 'xxx"),
        (case_text("append_kv" + " " * 20_000 + "1 2 -> 0"), read_case, "8: the line has more than 500 characters"),
        (case_text("repeat i 1..2: append_kv 1 {i" + " " * 20_000 + "x}"), read_case, "more than 500 characters"),
        (case_text("repeat i 1..999999999: # {i}\n" * 99), read_case, "more than 5000 operations"),
        (case_text("repeat i 1..4000: append_kv 1 {i} -> 0\n" * 9), read_case, "more than 5000 operations"),
        (case_text("repeat i 1..9: repeat k 1..9: append_kv 1 {i} -> 0"), read_case, "unknown operation 'repeat'"),
        (
            case_text("@2 llm_init 1048576 -> engine\n@2 llm_destroy -> 0\n" * 9),
            read_case,
            "at most 8388608 are played",
        ),
        ("folder,name\na," + "x" * 200_000 + "\n", roster.load, "2: cannot be read as CSV"),
        ("folder,name\na," + "x" * 2000 + "\n", roster.load, "2: name has more than 1000 characters"),
        ("folder,name\n" + "a,b\n" * 30_000, roster.load, "more"),
        ("folder,name\n" + "\n" * 30_000, roster.load, "20002: there are more than 20000 rows"),
        ("folder,name,name\na,b,c\n", roster.load, "1: the column 'name' occurs twice"),
        ("folder,name\n" + "x" * (5 << 20), roster.load, "1: is larger than 4096 KB"),
        ("a: " + "[" * 100_000, roster.submitters, "1: is nested too deeply"),
        (
            "\n".join(" " * depth + "a:" for depth in range(300)),
            roster.submitters,
            ": is nested too deeply",
        ),
        ("a: b\n---\na: b\n", roster.submitters, "2: holds more than one list"),
        ("%TAG !a! b\n" * 9 + "--- a", roster.submitters, "1: a line may not begin with %"),
        (
            "a: b\nc: {submitters: jane}\n",
            roster.submitters,
            "2: c: its :submitters: must be a list of people",
        ),
        (
            "d: &d {submitters: *d }\n",
            roster.submitters,
            "1: d: its :submitters: must be a list of people",
        ),
        ("a: *b\n", roster.submitters, "1: is not YAML (found undefined alias"),
        ("a: b\nc: \x01\n", roster.submitters, "2: is not YAML (control characters are not allowed)"),
    ],
)
def test_what_is_too_much_is_one_sentence(
    tmp_path: Path, content: str, read: Callable[[Path], object], says: str
) -> None:
    """With path and line: a file of megabytes, keys of thousands of parts, lines of blanks, repeats of repeats."""
    assert any(says in line for line in complaint(tmp_path / "file.toml", content, read))


def test_a_list_of_very_many_values_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is used, and of what is skipped."""
    monkeypatch.setattr(roster, "_MOST_NODES", 1000)
    for text in ("a:\n submitters:\n" + " - {name: x}\n" * 400, "a:\n" + " - x\n" * 1100):
        message = complaint(tmp_path / "m.yml", text, roster.submitters)[0]

        assert message.endswith(": holds more than 1000 values; name the class yourself, with --roster FILE")


def test_a_short_file_cannot_name_millions(tmp_path: Path) -> None:
    """A thousand submissions of the same thousand people."""
    people = "a: &a\n" + "- {name: x}\n" * 1000
    text = people + "".join(f"s{number}: {{submitters: *a }}\n" for number in range(1000))

    assert complaint(tmp_path / "m.yml", text, roster.submitters)[0].startswith("1: names more than 20000 students")


def test_the_line_of_a_key_is_found_however_it_is_written() -> None:
    """Quotes and blanks make no other key of it."""
    text = 'a = 1\n[ rules . "x y" ]\n"points" = 3\n[[row]]\nb = 1\n[[row]]\n  b  = 2\n'

    assert input_file.line_of(text, "points", "rules.x y") == 3
    assert input_file.line_of(text, "b", "row", 1) == 7
    assert input_file.line_of(text, "c", "row", 0) == 4
    assert input_file.line_of(text, "b", "row", 2) == 1
    assert input_file.line_of(text, "nothing") == 1
