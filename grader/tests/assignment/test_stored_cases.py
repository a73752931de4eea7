"""Stored cases: the same as loaded ones, never those of other files, and never missed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.assignment import case_files, stored as storage
from grader.core.case import Case
from grader.labs.paged_kv.lab import lab
from grader.tests.assignment.test_case_files import CREATED, written


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private folder of its own, and where the cases are stored in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "paged-kv-grader" / "cases"


@pytest.fixture
def folder(tmp_path: Path, stored: Path) -> Path:
    """A folder with two cases, whose loaded form is stored."""
    assert not stored.exists()
    made = tmp_path / "written"
    made.mkdir()
    written(made, CREATED, name="one")
    written(made, f"{CREATED}\nappend_kv 1 7 -> 0", name="two")
    cases_of(made)
    return made


def cases_of(folder: Path, *, seed: int = 1, pattern: str = "*") -> list[Case]:
    """The cases of this folder, stored or not."""
    return case_files.load_cases(folder, lab().grammar, seed=seed, pattern=pattern)


def test_what_old_code_makes_is_not_stored_for_the_new_code(
    folder: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that goes on after an update still has the old code."""
    before = list(stored.iterdir())
    monkeypatch.setattr(storage, "_code_times", tuple)
    written(folder, f"{CREATED}\nfree_sequence 1 -> 0", name="one")

    assert cases_of(folder) == case_files.load_folder(folder, lab().grammar, seed=1)
    assert list(stored.iterdir()) == before


def test_a_case_that_is_edited_while_it_is_loaded_is_not_stored(
    folder: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file would say something else than what was loaded."""
    shutil.rmtree(stored)
    real = case_files.load_folder

    def meanwhile(*arguments: object, **named: object) -> list[Case]:
        found = real(*arguments, **named)  # type: ignore[arg-type]
        written(folder, f"{CREATED}\nfree_sequence 1 -> 0", name="one")
        return found

    monkeypatch.setattr(case_files, "load_folder", meanwhile)
    assert [len(case.expected.records) for case in cases_of(folder)] == [3, 4]
    assert list(stored.iterdir()) == []


def test_without_a_private_folder_cases_are_loaded(folder: Path, stored: Path) -> None:
    """Others may write to it: nothing in it is believed, and nothing is stored."""
    stored.parent.chmod(0o777)
    before = [path.stat().st_mtime_ns for path in stored.iterdir()]

    assert cases_of(folder, seed=9) == case_files.load_folder(folder, lab().grammar, seed=9)
    assert [path.stat().st_mtime_ns for path in stored.iterdir()] == before
