"""Text that others wrote is plain before anybody sees it, wherever it stands in a record."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from grader.core.record import Record, Submission, from_json, to_json
from grader.core.sanitize import MOST_TEXT, decoded, decoded_lines, made_plain, one_line, plain
from grader.tests.support.handmade import outcome, record_of, secret_record
from grader.tests.support.injected import INJECTIONS, filled


def unseen(text: str) -> set[str]:
    """Characters that steer, hide, or cannot be written in XML."""
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\n\twith tabs", "plain text\n\twith tabs"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("a\0b", r"a\x00b"),
        ("abc\u202edef", r"abc\u202edef"),
        ("\ud800", r"\ud800"),
        ("作业 résumé 🙂", "作业 résumé 🙂"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    """Line ends and tabs stay, and of plain text it is the same text."""
    assert plain(text) == shown
    assert plain(shown) == shown
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"a\xff\xfeb", r"a\xff\xfeb"), ("作".encode()[:2], r"\xe4\xbd"), (b"\xed\xa0\x80", r"\xed\xa0\x80")],
)
def test_bytes_that_are_no_text_are_written_out(data: bytes, shown: str) -> None:
    """Nothing is lost, and nothing raises."""
    assert decoded(data) == shown


OLD = {
    "gbk": ["// 内存管理：写时复制，“块表”", "int x; /* 引用计数 */ int y;", "// 镕 喆 are rare"],
    "gb2312": ["// 返回块号", 'printf("错误：%d\\n", n);'],
    "latin-1": ["// für größere Blöcke", "int x; /* où l'élève écrit */ int y;", "// ¿señor? £10 °C Ã"],
}


@pytest.mark.parametrize("encoding", OLD)
def test_a_source_of_an_old_editor_is_shown_as_what_it_is(encoding: str) -> None:
    """Its own lines and those in UTF-8 between them, in their places; code beside a comment is the same."""
    lines = [*OLD[encoding], "", "int plain;"]
    data = [line.encode(encoding) for line in lines]

    assert decoded_lines([*data, "作业 für".encode(), b"x"]) == [*lines, "作业 für", "x"]
    assert [decoded_lines([line]) for line in data if line[:3] != b"// "] == [
        [line] for line in lines if line[:3] != "// "
    ]


def test_a_guess_is_as_plain_as_anything_else() -> None:
    """Controls and marks of order in any encoding, bytes that are none, and each line by itself."""
    override = "\u202e".encode("gb18030")
    data = [
        "内存管理：写时复制".encode("gbk") + b"\x1b[31m" + override + b"\xff",
        "内".encode("gbk")[:1],
        b"a\x85\x9b31m\xe9",
        b"\xff\xfe",
    ]
    shown = decoded_lines(data)

    assert shown[:2] == [r"内存管理：写时复制\x1b[31m\u202e\xff", r"\xc4"]
    assert decoded_lines(data[2:]) == [r"a\x85\x9b31mé", "ÿþ"]
    assert decoded_lines([]) == []
    assert set().union(*map(unseen, shown)) == set()
    assert len(shown) == len(data)


@given(st.lists(st.binary(max_size=40)))
def test_whatever_the_bytes_no_line_moves_and_ascii_stays(lines: list[bytes]) -> None:
    """One text for each line, nothing in it that steers, and of a line in ASCII that line."""
    shown = decoded_lines(lines)

    assert len(shown) == len(lines)
    assert set().union(*map(unseen, shown)) <= {"\n", "\t"}
    assert [plain(line.decode()) for line in lines if line.isascii()] == [
        text for line, text in zip(lines, shown, strict=True) if line.isascii()
    ]


@pytest.mark.parametrize("name", INJECTIONS)
def test_no_record_holds_anything_else(name: str) -> None:
    """Every text of every part, filled with an attack: what JSON carries is plain, bounded, and comes back."""
    record: Record = filled(INJECTIONS[name])
    texts: list[str] = []

    def find_submissions(value: object) -> None:
        if isinstance(value, str):
            texts.append(value)
        for item in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
            find_submissions(item)

    find_submissions(json.loads(to_json(record)))

    assert len(texts) > 60
    assert set().union(*map(unseen, texts)) <= {"\n", "\t"}
    assert max(map(len, texts)) <= MOST_TEXT
    assert from_json(to_json(record)) == record


def test_it_cannot_be_slipped_in_later() -> None:
    """Neither by changing a record nor by reading a file that somebody else wrote."""
    made = replace(record_of(), submission=Submission(name="a\x1bb", notes=("c\0d",)))
    read = from_json(to_json(made).replace(r"a\\x1bb", r"a\u001bb"))

    assert made.submission == Submission(name=r"a\x1bb", notes=(r"c\x00d",))
    assert read == made


def test_a_plain_record_is_left_as_it_is() -> None:
    """The same objects: it costs a look."""
    record = secret_record(outcome("append/x"), outcome("append/作业"))

    assert made_plain(record) is record
    assert made_plain(record.outcomes) is record.outcomes


def test_a_long_text_says_that_it_was_cut() -> None:
    """At its end, within the bound; cut again it is the same."""
    record = replace(record_of(), output="x" * 100_000)

    assert len(record.output) == MOST_TEXT
    assert record.output.endswith("... (cut here)")
    assert replace(record, seed=1).output == record.output
