"""Whatever bytes of a store are damaged, each command ends with a sentence about it, or with what is right.

`python -m grader.tests.trials.many_damaged_stores` damages more of them.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.classroom.database import opened
from grader.core.errors import StoreError
from grader.tests.support.command import grade
from grader.tests.support.counter_lab import counters_in_process
from grader.tests.support.damaged_stores import COMMANDS, ends_on_damaged, graded_class

_COUNT = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """That of a class which was graded with a roster and overrides."""
    with counters_in_process():
        yield graded_class(tmp_path_factory.mktemp("counters"))


def test_no_command_breaks_on_a_damaged_store(store: Path) -> None:
    """SQLite quotes damaged bytes in its messages, and Python cannot always decode them."""
    ends = list(ends_on_damaged(store, _COUNT))
    broken = [(end.number, end.words, end.err) for end in ends if "the grader broke" in end.err]

    assert len(ends) == _COUNT * len(COMMANDS)
    assert broken == []
    assert {end.code for end in ends} == {0, 1, 2, 3}
    assert [end for end in ends if end.code in (2, 3) and not (end.err + end.out).strip()] == []


def test_a_message_with_damaged_bytes_is_shown_with_them(tmp_path: Path) -> None:
    """The name of a table in the file's schema is no UTF-8."""
    path = tmp_path / "grades.sqlite"
    with opened(path, create=True):
        pass
    content = path.read_bytes()
    path.write_bytes(content.replace(b"tablemissingmissing", b"tablem\xffssingmissing"))
    expected = r"malformed database schema \(.*\\xff.*\); the file is damaged: save what"
    with pytest.raises(StoreError, match=expected), opened(path, read_only=True):
        pass


def test_a_text_that_is_no_utf_8_damages_its_row_only(store: Path, tmp_path: Path) -> None:
    """The others are read and exported."""
    path = tmp_path / "grades.sqlite"
    path.write_bytes(store.read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET points = CAST(x'7bff7d' AS TEXT) WHERE score = 100")
    connection.close()
    exported = grade("export", "--store", path, "--partial")

    assert (exported.code, "without a score yet: 1: ada" in exported.err) == (0, True), exported.err
    assert [row["name"] for row in csv.DictReader(io.StringIO(exported.out))] == ["Bob", "Eve"]
