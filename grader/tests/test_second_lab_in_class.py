"""A new lab is a package in `grader/labs/` and a line in `LABS`: then classes are graded and bundles made with it."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from grader.bundles.platforms import BUNDLES
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


@pytest.mark.parametrize("name", sorted(BUNDLES))
def test_a_bundle_is_made(place: Path, name: str) -> None:
    """With the cases of this lab, and of no other; the hidden one only where students do not see the files."""
    said = call(place, "pack", name, f"made-{name}", "--lab", "counter")
    files = [path for path in (place / f"made-{name}").rglob("*") if path.is_file()]
    names = [path.as_posix() for path in files]
    for path in (path for path in files if path.suffix == ".zip"):
        names += zipfile.ZipFile(path).namelist()

    assert said.code == 0, said.err
    assert len([name for name in names if "counter/cases/basic/" in name]) == (4 if name == "gradescope" else 3)
    assert [name for name in names if "cases/paged_kv" in name] == []


def test_the_starter_bundle_grades_by_itself(place: Path) -> None:
    """A student who has nothing else."""
    assert call(place, "pack", "starter", "hand-out", "--lab", "counter").code == 0
    bundle = place / "hand-out"
    (bundle / "counter.sh").write_text(RIGHT, encoding="utf-8")
    said = grade_process("run", "counter.sh", "--lab", "counter", cwd=bundle, root=bundle / "grading")

    assert said.code == 0, said.out + said.err
    assert "100 of 100 points" in said.out
