"""Text that others wrote is plain before anybody sees it, wherever it stands in a record."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace

import pytest

from grader.plain import MOST_TEXT, decoded, made_plain, one_line, plain
from grader.record import Record, Submission, from_json, to_json
from grader.tests.injected import INJECTIONS, filled
from grader.tests.made import outcome, record_of, secret_record


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


@pytest.mark.parametrize("name", INJECTIONS)
def test_no_record_holds_anything_else(name: str) -> None:
    """Every text of every part, filled with an attack: what JSON carries is plain, bounded, and comes back."""
    record: Record = filled(INJECTIONS[name])
    texts: list[str] = []

    def gather(value: object) -> None:
        if isinstance(value, str):
            texts.append(value)
        for item in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
            gather(item)

    gather(json.loads(to_json(record)))

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
