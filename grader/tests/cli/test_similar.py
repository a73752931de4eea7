"""`grade similar`: pairs of a folder or of a store, on the terminal and as pages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.classroom import similarity
from grader.core.errors import ExitCode
from grader.tests.support.command import ROOT, SAMPLES, Said, grade
from grader.tests.support.disguised import disguised
from grader.tests.support.odd_classes import put

_HOSTILE = "<b>[red]x \x1b[2J"
_MARKUP = b'/* </td></table><script>alert(1)</script> */ char *s = "<img src=x onerror=alert(1)>";\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class: two alike, of whom one attacks the page; another; one without a file, and one with the starter only."""
    folder = tmp_path_factory.mktemp("class")
    source = SAMPLES / "wrong_answer" / "no_copy_on_write" / "llm_memory.c"
    other = SAMPLES / "accepted" / "goto_cleanup_rollback" / "llm_memory.c"
    starter = ROOT / "grader" / "labs" / "paged_kv" / "starter" / "llm_memory.c"
    put(folder / "in" / "ann" / "llm_memory.c", source.read_bytes())
    copy = disguised(source.read_text(encoding="utf-8"), ".c")
    put(folder / "in" / _HOSTILE / "llm_memory.c", _MARKUP + copy.encode())
    for name, path in (("cem", other), ("dora", starter)):
        put(folder / "in" / name / "llm_memory.c", path.read_bytes())
    put(folder / "in" / "eve" / "notes.txt", b"nothing yet")
    put(folder / "class.csv", b"folder,name\nann,Ann <i>Example</i>\n")
    grade(
        *("batch", "in", "--lab", "paged_kv", "--roster", "class.csv", "--case", "init/*", "--without-memory-checker"),
        cwd=folder,
    )
    return folder


def rows(said: Said) -> list[list[str]]:
    """The rows of the table, each with its cells."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in said.out.split("\n") if "│" in line]


def test_what_is_listed_is_bounded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class in which all are alike would be as many pages as it has pairs: the best of each submission come first."""
    monkeypatch.setattr(similarity, "_MOST_PAIRS", 1)

    said = grade("similar", "in", "--threshold", "0.01", cwd=place)

    assert said.out.startswith("3 pairs of 1 % or more in 3 submissions; shown are 1 of them, the best of each")
    assert [row[2] for row in rows(said)] == ["ann"]


def test_the_page_of_the_class_says_how_many_are_alike(place: Path) -> None:
    """It leads to the same pages as --output has, and says nothing where nobody asked; records stay as they are."""
    stored = (place / "grades.sqlite").read_bytes()
    grade("similar", "--store", "grades.sqlite", "--output", "pairs", cwd=place)
    export = ("export", "--store", "grades.sqlite", "--partial", "--format", "html", "--output")
    plain = grade(*export, "plain", cwd=place)
    noted = grade(*export, "noted", "--similar", cwd=place)
    page = (place / "noted" / "class" / "index.html").read_text(encoding="utf-8")

    assert (plain.code, noted.code) == (ExitCode.ACCEPTED, ExitCode.ACCEPTED), noted.err
    assert '<a href="similar/index.html">1 pair of 80 % or more in 3 submissions</a>' in page
    assert "similar" not in (place / "plain" / "class" / "index.html").read_text(encoding="utf-8")
    assert not (place / "plain" / "class" / "similar").exists()
    for path in (place / "pairs").iterdir():
        assert (place / "noted" / "class" / "similar" / path.name).read_bytes() == path.read_bytes()
    assert (place / "grades.sqlite").read_bytes() == stored
    again = grade(*export, "noted", cwd=place)
    assert "not of this export, so look at them before you hand the folder on: 2: class/similar/" in again.err
    assert "not of this export" not in noted.err


def test_what_cannot_be_done_says_what_to_write(place: Path) -> None:
    """And no page is written."""
    put(place / "full" / "mine.txt", b"work")
    for words, message in (
        ((), "write either the FOLDER of the submissions or --store FILE"),
        (("in", "--store", "grades.sqlite"), "write either the FOLDER"),
        (("in", "--run", "1"), "--run works with --store only"),
        (("nowhere",), "there is no such folder"),
        (("--store", "nowhere.sqlite"), "nowhere.sqlite"),
        (("--store", "grades.sqlite", "--run", "9"), "there is no run 9"),
        (("--store", "grades.sqlite", "--lab", "hybrid"), "run 1 is of paged_kv, not of hybrid"),
        (("in", "--threshold", "80"), "write a share from 0.01 to 1, such as 0.8, not '80'"),
        (("in", "--threshold", "nan"), "write a share from 0.01 to 1, such as 0.8, not 'nan'"),
        (("in", "--output", "full"), "full: it is not empty"),
        (("in", "--lab", "scheduler"), "nothing can be compared here; is --lab right?"),
    ):
        said = grade("similar", *words, cwd=place)
        assert (said.code, said.out, message in said.err) == (ExitCode.BAD_INPUT, "", True), said.err
    said = grade("export", "--store", "grades.sqlite", "--similar", cwd=place)
    assert (said.code, "--similar works with --format html only" in said.err) == (ExitCode.BAD_INPUT, True), said.err


def test_a_class_of_one_has_no_pairs(place: Path, tmp_path: Path) -> None:
    """It could be compared with nobody."""
    shutil.copytree(place / "in" / "ann", tmp_path / "in" / "ann")

    said = grade("similar", "in", cwd=tmp_path)

    assert (said.code, said.out) == (ExitCode.ACCEPTED, "0 pairs of 80 % or more in 1 submission\n")
