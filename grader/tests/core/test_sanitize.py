"""Text that others wrote is plain before anybody sees it, wherever it stands in a record."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from grader.core.record import Record, from_json, to_json
from grader.core.sanitize import MOST_TEXT, decoded_lines, plain
from grader.tests.support.injected import INJECTIONS, filled


def unseen(text: str) -> set[str]:
    """Characters that steer, hide, or cannot be written in XML."""
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")}


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
