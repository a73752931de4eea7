"""Stored cases: the same as loaded ones, never those of other files, and never missed."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from grader.assignment import case_files, case_selection, stored as storage
from grader.core.case import Case
from grader.core.errors import CaseFileError
from grader.labs.paged_kv.lab import lab
from grader.tests.assignment.test_case_files import CREATED, written
from grader.tests.support.counter import model
from grader.tests.support.counter.lab import lab as counter


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
    return case_selection.load_cases(folder, lab().grammar, seed=seed, pattern=pattern)


def never(*_: object, **__: object) -> list[Case]:
    """In the place of the loader."""
    raise AssertionError("loaded again")


def test_a_mistake_is_told_although_the_cases_were_right_before(folder: Path) -> None:
    """Each time, since nothing of them is stored."""
    written(folder, "create_sequence 1 5 -> NULL", name="one")
    for _ in range(2):
        with pytest.raises(CaseFileError, match="claims NULL, the reference returns seq"):
            cases_of(folder)


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


def test_another_model_loads_them_again(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a lab whose files lie elsewhere."""
    path = tmp_path / "elsewhere.py"
    shutil.copy(Path(model.__file__), path)
    spec = importlib.util.spec_from_file_location("elsewhere", path)
    assert spec is not None
    assert spec.loader is not None
    elsewhere = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "elsewhere", elsewhere)
    spec.loader.exec_module(elsewhere)
    grammar = replace(counter().grammar, model=elsewhere.Counter, code=(path,))
    first = case_selection.load_cases(counter().cases, grammar, seed=1)
    with monkeypatch.context() as patched:
        patched.setattr(case_files, "load_folder", never)
        assert case_selection.load_cases(counter().cases, grammar, seed=1) == first

        path.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
        with pytest.raises(AssertionError, match="loaded again"):
            case_selection.load_cases(counter().cases, grammar, seed=1)
    assert stored.exists()
