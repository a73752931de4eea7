"""`grade pack`: what a bundle carries, that it is made as a whole or not at all, and always of the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from grader import bundles
from grader.bundles import BUNDLES, File, put, tree
from grader.core.errors import UsageError
from grader.labs import LABS, open_lab
from grader.tests.support.command import grade

FILES = (File(name="a", content=b"1"), File(name="b/c", content=b"2", runs=True))


def held(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_help_lists_all_bundles() -> None:
    """And a wrong name is answered with the one that was meant."""
    said = " ".join(grade("pack", "--help").out.replace("│", " ").split())
    wrong = grade("pack", "gradscope", "out")

    assert [name for name in BUNDLES if f"{name}, " not in said] == []
    assert (wrong.code, "did you mean gradescope?" in wrong.err) == (2, True)


@pytest.mark.parametrize("name", LABS)
def test_students_begin_with_the_handout(name: str) -> None:
    """As it is in the lab's folder of cases."""
    lab = open_lab(name)
    files = {file.name: file.content for file in BUNDLES["starter"].make(lab, ())}

    assert files["HANDOUT.md"] == (lab.cases / "handout.md").read_bytes()


def test_a_bundle_is_made_by_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What pip installed of one has no scripts that could set it up."""
    monkeypatch.setattr("grader.bundles._ROOT", tmp_path)
    with pytest.raises(UsageError, match="only a clone can make"):
        list(tree(open_lab("paged_kv"), ()))


@pytest.mark.parametrize("interrupt", [OSError, KeyboardInterrupt])
def test_an_interrupted_pack_leaves_what_was_there(
    interrupt: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, or the bundle of before."""
    put(FILES[:1], tmp_path / "old")
    write = bundles._write

    def fail(path: Path, file: File) -> None:
        write(path, file)
        if file is FILES[1]:
            raise interrupt

    monkeypatch.setattr(bundles, "_write", fail)
    for name in ("new", "old"):
        with pytest.raises(interrupt):
            put(FILES, tmp_path / name, replace=True)

    assert held(tmp_path) == {"old/a": b"1"}
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_nothing_is_overwritten_without_a_word(tmp_path: Path) -> None:
    """With it, only what such a bundle left there before."""
    folder = tmp_path / "out"
    put(FILES, folder)
    with pytest.raises(UsageError, match="--replace"):
        put(FILES, folder, replace=False)
    put([File(name="a", content=b"3"), FILES[1]], folder, replace=True)
    (folder / "notes").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="notes in it is not part of this bundle"):
        put(FILES, folder, replace=True)

    assert held(folder) == {"a": b"3", "b/c": b"2", "notes": b"mine"}


@pytest.mark.parametrize("name", BUNDLES)
def test_a_folder_that_nobody_can_make_is_one_sentence(name: str) -> None:
    """Root may write into /proc, and yet makes nothing there."""
    told = grade("pack", name, "/proc/x", "--lab", "paged_kv")

    assert told.code == 2
    assert re.fullmatch(
        r"grade: /proc/x(: no permission to write to /proc| cannot be written: .*; write another path)\n", told.err
    )


@pytest.mark.parametrize(
    ("folder", "complaint"),
    [
        ("no/such", "there is no folder"),
        ("file", "is not a folder"),
        ("link", "is not a folder"),
        (".", "a new folder"),
    ],
)
def test_a_wrong_place_is_said_at_once(folder: str, complaint: str, tmp_path: Path) -> None:
    """Before anything is read or made."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path)
    said = grade("pack", "gradescope", folder, "--replace", cwd=tmp_path)

    assert (said.code, complaint in said.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]
