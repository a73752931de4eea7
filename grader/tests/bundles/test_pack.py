"""`grade pack`: what a bundle carries, that it is made as a whole or not at all, and always of the same bytes."""

from __future__ import annotations

import io
import os
import re
import shutil
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from grader.assignment import case_files
from grader.bundles import bundle
from grader.bundles.bundle import File, put, zipped
from grader.bundles.platforms import BUNDLES
from grader.bundles.tree import tree
from grader.core.errors import UsageError
from grader.labs import LABS, open_lab
from grader.tests.support.command import ROOT, copy_of_the_house, grade, grade_process
from grader.tests.test_house_files import house_files

FILES = (File(name="a", content=b"1"), File(name="b/c", content=b"2", runs=True))


def held(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A house to write into, with all that packing reads."""
    root = copy_of_the_house(tmp_path / "clone")
    for name in ("scripts", ".ci"):
        shutil.copytree(ROOT / name, root / name)
    return root


def test_help_lists_all_bundles() -> None:
    """And a wrong name is answered with the one that was meant."""
    said = " ".join(grade("pack", "--help").out.replace("│", " ").split())
    wrong = grade("pack", "gradscope", "out")

    assert [name for name in BUNDLES if f"{name}, " not in said] == []
    assert (wrong.code, "did you mean gradescope?" in wrong.err) == (2, True)


def test_a_tree_carries_our_packages_and_nothing_beside_them() -> None:
    """Of what git keeps: all of both packages but tests, benchmarks and READMEs; the cases, and what sets it up."""
    lab = open_lab("paged_kv")
    cases = case_files.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed)
    kept = {path.relative_to(ROOT).as_posix() for path in house_files()}
    others = "|".join(f"reference/{name}/|grader/labs/{name}/" for name in LABS if name != lab.name)
    code = {name for name in kept if re.match(r"(reference|grader)/(?!(.*/)?((tests|bench)/|README.md))", name)}
    code = {name for name in code if not re.match(others, name)}
    asked = {name for name in kept if name.startswith(f"cases/{lab.name}/")}
    files = {file.name: file for file in tree(lab, cases)}

    assert files.keys() - {"pyproject.toml", "scripts/setup", "scripts/grade", ".ci/grading.lock"} == code | asked
    assert {name for name in files if files[name].runs} == {"scripts/setup", "scripts/grade"}


def test_a_tree_carries_the_cases_that_it_is_given() -> None:
    """The rubric, the sentences of the handout and the known mistakes always."""
    lab = open_lab("paged_kv")
    cases = case_files.load_folder(lab.cases, lab.grammar, seed=lab.rubric.seed, pattern="init/*")
    names = [Path(file.name) for file in tree(lab, cases) if file.name.startswith("cases/")]
    folder = Path("cases", lab.name)

    assert {path.parent for path in names} == {folder, folder / "init"}
    assert {path.name for path in names if path.parent == folder} == {"rubric.toml", "handout.toml", "mistakes.toml"}
    assert len(names) == 3 + len(cases)


def test_a_bundle_is_made_by_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What pip installed of one has no scripts that could set it up."""
    monkeypatch.setattr("grader.bundles.tree._ROOT", tmp_path)
    with pytest.raises(UsageError, match="only a clone can make"):
        list(tree(open_lab("paged_kv"), ()))


def test_what_was_written_beside_stays_away(clone: Path, tmp_path: Path) -> None:
    """Neither is it seen in the bytes: times and permissions of a clone are its own."""
    grade_process("pack", "gradescope", tmp_path / "before", "--lab", "paged_kv", root=clone)
    for name in (
        "grader/grades.sqlite",
        "grader/.secret.py",
        "grader/report/x.py~",
        "cases/paged_kv/append/x.toml.orig",
    ):
        (clone / name).write_text("beside", encoding="utf-8")
    (clone / "grader" / "link.py").symlink_to("/etc/hostname")
    (clone / "grader" / "core" / "__pycache__").mkdir(exist_ok=True)
    (clone / "grader" / "core" / "__pycache__" / "x.py").write_text("beside", encoding="utf-8")
    (clone / "grader" / "judge" / "score.py").chmod(0o600)
    os.utime(clone / "grader" / "judge" / "score.py", (0, 0))
    grade_process("pack", "gradescope", tmp_path / "after", "--lab", "paged_kv", root=clone)

    assert held(tmp_path / "before") == held(tmp_path / "after") != {}


def test_an_archive_keeps_names_programs_and_no_time() -> None:
    """At its root, for Gradescope looks for its scripts there."""
    archive = zipfile.ZipFile(io.BytesIO(zipped(reversed(FILES))))
    entries = [(entry.filename, oct(entry.external_attr >> 16), entry.date_time[0]) for entry in archive.infolist()]

    assert entries == [("a", "0o100644", 1980), ("b/c", "0o100755", 1980)]
    assert zipped(FILES) == zipped(reversed(FILES))


def test_grading_installs_few_packages() -> None:
    """Whatever they ask for is locked with them, and nothing that only our own work needs."""
    lock = (ROOT / ".ci" / "grading.lock").read_text(encoding="utf-8")
    names = set(re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = {Requirement(line).name for line in project["project"]["dependencies"]}
    ours = {Requirement(line).name for line in project["dependency-groups"]["dev"]}

    assert asked | {"hatchling", "pip", "uv"} <= names
    assert names & ours == {"markdown-it-py"}  # rich reads with it
    assert {name for one in names - {"pip", "uv"} for name in _asked_by(one)} <= names
    assert len(names - {"pip", "uv"}) <= 20


def _asked_by(name: str) -> Iterator[str]:
    """What an installed package needs here."""
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name.lower().replace("_", "-")


def test_a_folder_is_filled_at_once(tmp_path: Path) -> None:
    """A new one, or one that is empty; nothing of the work on it is left."""
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        put(FILES, tmp_path / name)

        assert held(tmp_path / name) == {"a": b"1", "b/c": b"2"}
        assert os.access(tmp_path / name / "b" / "c", os.X_OK)
        assert not os.access(tmp_path / name / "a", os.X_OK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


@pytest.mark.parametrize("interrupt", [OSError, KeyboardInterrupt])
def test_an_interrupted_pack_leaves_what_was_there(
    interrupt: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, or the bundle of before."""
    put(FILES[:1], tmp_path / "old")
    write = bundle._write

    def fail(path: Path, file: File) -> None:
        write(path, file)
        if file is FILES[1]:
            raise interrupt

    monkeypatch.setattr(bundle, "_write", fail)
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
