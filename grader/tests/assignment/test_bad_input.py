"""What users type wrong and what files may hold: one line that says what to write, never a traceback, never a zero."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.assignment import case_files
from grader.core.errors import CaseFileError
from grader.labs.paged_kv.lab import lab
from grader.tests.support.command import FEW, ROOT, SAMPLES, grade

RIGHT = SAMPLES / "accepted" / "yoda_crlf"
WRONG = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"

GOOD = """title       = "a title"
handout     = "Task 4/store"
rule        = "address"
visibility  = "public"
pool_blocks = 4
operations  = '''
create_sequence 1 5 -> seq
'''
"""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", RIGHT, "--format", "jsn"), "there is no format 'jsn' (did you mean json?); there are text, json, "),
        (("run", RIGHT, "--lab", "paged"), "there is no lab 'paged'; write --lab paged_kv"),
        (("run", RIGHT, "--case", "nosuch/*"), "no case matches 'nosuch/*'; `grade cases` lists them all"),
        (("run", RIGHT, "--case", "["), "no case matches '['"),
        (("run", RIGHT, "--case", ""), "no case matches ''"),
        (("run", "nowhere"), "nowhere: no such file or folder; give the path of "),
        (("run", "x" * 300), "x: "),
        (("run", SAMPLES / "accepted"), "several files can be graded: beginner_overcommented/llm_memory.c, "),
        (("run", RIGHT, "--output", "/nonexistent/x"), "there is no folder /nonexistent"),
        (("run", RIGHT, "--output", "/tmp", *FEW), "--output /tmp"),
        (("run", RIGHT, "--output", "/dev/null", *FEW), "--output /dev/null: it is not a file"),
        (("repro", RIGHT, "--output", "/tmp"), "--output /tmp"),
        (("run", RIGHT, WRONG, "--output", "x"), "--output takes the report of one submission"),
        (("cases", "--lab", "x"), "there is no lab 'x'"),
        (("cases", "--case", "x"), "no case matches 'x'"),
        (("explain", "one_recrd"), "there is no case 'one_recrd'; did you mean 'one_record'?"),
        (("explain", "frok/counts_two"), "there is no case 'frok/counts_two'; did you mean 'fork/counts_two'?"),
        (("explain", "append/first_append"), "did you mean 'append/first_append_after_fork_copies'?"),
        (("repro", RIGHT, "frok/counts_two"), "there is no case 'frok/counts_two'; did you mean 'fork/counts_two'?"),
        (("explain", "every_place"), "which one? "),
        (("explain", ""), "there is no case ''; see `grade cases`"),
        (("explain", ROOT / "README.md"), "there is no case"),
        (("repro", RIGHT, "nosuch"), "there is no case 'nosuch'"),
        (("repro", SAMPLES / "compile_error" / "sign_compare"), "does not compile, so no case can be played"),
    ],
)  # fmt: skip
def test_a_slip_is_one_line_that_says_what_to_write(arguments: tuple[str | Path, ...], says: str) -> None:
    """Exit code 2, nothing on stdout."""
    said = grade(*arguments)

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("grade: ")
    assert says in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nonsense",), "nonsense"),
        (("rum", RIGHT), "there is no command 'rum' (did you mean run?)"),
        (("run", RIGHT, "--fromat", "json"), "there is no option --fromat (did you mean --format?)"),
        (("run", RIGHT, "--advice=yes"), "--advice"),
        (("run", RIGHT, "--seed"), "--seed"),
        (("run",), "PATH"),
        (("run", RIGHT, "--nonsense"), "--nonsense"),
        (("run", RIGHT, "--seed", "x"), "--seed"),
        (("run", RIGHT, "--seed", "-1"), "--seed"),
        (("run", RIGHT, "--seed", "2147483648"), "--seed"),
        (("run", "-dash"), "-d"),
        (("explain",), "CASE"),
        (("schema", "more"), "more"),
    ],
)
def test_what_the_command_line_does_not_know_is_2(arguments: tuple[str | Path, ...], says: str) -> None:
    """It is named, and help is pointed to."""
    said = grade(*arguments)

    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert "-h" in said.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "1: title is missing: write title = "),
        (b"\x00\x01\xff\xfe", "1: is not UTF-8 text"),
        ("title = 'é'".encode("latin-1"), "1: is not UTF-8 text"),
        (b"title = 'a\x00b'", "1: there is an invisible character in this line; remove it"),
        (b"\xef\xbb\xbf" + GOOD.encode(), "1: the file begins with a byte order mark; save it"),
        (b"title = 'x'\nnot toml at all", "2: write KEY = VALUE, [TABLE]"),
        (GOOD.encode() + GOOD.encode(), "9: the key title is defined twice"),
        (b"weight = " + b"9" * 5000, "1: "),
        (b"weight = " + b"[" * 20_000, "1: "),
        (b"operations = '''\nnever ended", "1: what begins here does not end"),
        (b"[operations]\nx = 1\n", "operations"),
    ],
    ids=["empty", "binary", "latin-1", "NUL", "BOM", "text", "twice", "digits", "nested", "open", "table"],
)
def test_a_file_that_is_no_case(tmp_path: Path, content: bytes, says: str) -> None:
    """Whatever it holds, its path and a line are told, and all other files are read."""
    folder = tmp_path / "append"
    folder.mkdir()
    (folder / "bad.toml").write_bytes(content)
    (folder / "good.toml").write_text(GOOD, encoding="utf-8")
    (folder / "worse.toml").write_text(GOOD.replace("address", "adress"), encoding="utf-8")

    with pytest.raises(CaseFileError) as caught:
        case_files.load_folder(tmp_path, lab().grammar, seed=1)

    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"{folder / 'bad.toml'}:")
    assert any(says in line for line in lines)
    assert lines[-1] == f"{folder / 'worse.toml'}:3: unknown rule 'adress' (did you mean address?)"
    assert not any("good.toml" in line for line in lines)
