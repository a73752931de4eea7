"""Whatever bytes of a store are damaged, each command ends with a sentence about it, or with what is right."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.database import opened
from grader.core.errors import StoreError
from grader.tests.support.command import environment, grade_process
from grader.tests.support.counter_house import BELOW, RIGHT, counter_class
from grader.tests.support.damaged_stores import COMMANDS

_COUNT = 200

_ROSTER = "folder,name,sid\nada,Ada,1\nbob,Bob,2\neve,Eve,3\n"
_OVERRIDES = '[[override]]\nsubmission = "bob"\nrule = "below"\npoints = 10\nreason = "half right"\nby = "Lee"\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class that was graded with a roster and overrides."""
    made = counter_class(tmp_path_factory.mktemp("counters"), {"ada": RIGHT, "bob": BELOW})
    (made / "roster.csv").write_text(_ROSTER, encoding="utf-8")
    (made / "overrides.toml").write_text(_OVERRIDES, encoding="utf-8")
    words = ("batch", "in", "--lab", "counter", "--roster", "roster.csv", "--overrides", "overrides.toml")
    assert grade_process(*words, cwd=made, root=made / "house").code == 1
    return made


@pytest.fixture(scope="module")
def ends(place: Path) -> list[dict[str, Any]]:
    """How each command ended on each damaged copy of the store."""
    done = subprocess.run(
        [sys.executable, "-m", "grader.tests.support.damaged_stores", "grades.sqlite", str(_COUNT)],
        cwd=place,
        env=environment(place / "house"),
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_command_breaks_on_a_damaged_store(ends: list[dict[str, Any]]) -> None:
    """SQLite quotes damaged bytes in its messages, and Python cannot always decode them."""
    broken = [(end["number"], end["words"], end["err"]) for end in ends if "the grader broke" in end["err"]]

    assert len(ends) == _COUNT * len(COMMANDS)
    assert broken == []
    assert {end["code"] for end in ends} == {0, 1, 2, 3}
    assert [end for end in ends if end["code"] in (2, 3) and not (end["err"] + end["out"]).strip()] == []


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


def test_a_text_that_is_no_utf_8_damages_its_row_only(place: Path, tmp_path: Path) -> None:
    """The others are read and exported."""
    path = tmp_path / "grades.sqlite"
    path.write_bytes((place / "grades.sqlite").read_bytes())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET points = CAST(x'7bff7d' AS TEXT) WHERE score = 100")
    connection.close()
    exported = grade_process("export", "--store", path, "--partial", cwd=place, root=place / "house")

    assert (exported.code, "without a score yet: 1: ada" in exported.err) == (0, True), exported.err
    assert [row["name"] for row in csv.DictReader(io.StringIO(exported.out))] == ["Bob", "Eve"]
