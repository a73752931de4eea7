"""A new lab is a package in `grader/labs/` and a line in `LABS`: then classes are graded and bundles made with it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from grader.tests.support.command import Said, grade_process
from grader.tests.support.counter_house import BELOW, RIGHT, counter_class

_CLASS = {"ada": RIGHT, "bob": BELOW}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the house with the counter among its labs, and a class of two."""
    return counter_class(tmp_path_factory.mktemp("counters"), _CLASS)


def call(place: Path, *words: str | Path) -> Said:
    """`grade` of the copied house, beside the class."""
    return grade_process(*words, cwd=place, root=place / "house")


def test_a_class_is_graded_stored_shown_and_graded_again(place: Path) -> None:
    """Each command that reads the store finds what the batch put there; nothing is graded twice."""
    graded = call(place, "batch", "in", "--lab", "counter", "--jobs", "2")
    again = call(place, "batch", "in", "--lab", "counter")
    points = {row["submission"]: row["score"] for row in csv.DictReader(io.StringIO(call(place, "export").out))}
    shown = call(place, "show", "bob")
    regraded = call(place, "regrade", "--jobs", "1")

    assert graded.code == again.code == 1, graded.err
    assert "2 submissions, 1 accepted, 1 not" in graded.out
    assert points == {"ada": "100", "bob": "60"}
    assert "take must refuse what is more than the total." in shown.out
    assert (regraded.code, "2 of them graded already" in regraded.err) == (1, True)
