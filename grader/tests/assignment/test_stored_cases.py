"""Stored cases: the same as loaded ones, never those of other files, and never missed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grader.assignment import case_files, case_selection, stored as storage
from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.errors import CaseFileError
from grader.labs import LABS
from grader.labs.paged_kv.lab import lab
from grader.tests.assignment.test_case_files import CREATED, written
from grader.tests.support.counter import model
from grader.tests.support.counter.lab import lab as counter
from grader.tests.support.toy_lab import lab as toy


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


def test_stored_cases_are_the_loaded_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all that the reference does in them."""
    loaded = case_files.load_folder(folder, lab().grammar, seed=1)
    monkeypatch.setattr(case_files, "load_folder", never)
    found = cases_of(folder)

    assert found == loaded
    assert [case.expected for case in found] == [case.expected for case in loaded]
    assert [len(case.expected.records) for case in found] == [3, 4]


def test_the_real_cases_are_stored_with_their_seed_and_pattern(stored: Path) -> None:
    """Other seeds are other pools; a pattern chooses."""
    chosen = lab()
    first = case_selection.load_cases(chosen.cases, chosen.grammar, seed=1, pattern="fork/*")
    other = case_selection.load_cases(chosen.cases, chosen.grammar, seed=2, pattern="fork/*")
    again = case_selection.load_cases(chosen.cases, chosen.grammar, seed=1, pattern="fork/*")
    fewer = case_selection.load_cases(chosen.cases, chosen.grammar, seed=1, pattern="fork/every_place")

    assert first == again
    assert [case.expected for case in first] == [case.expected for case in again]
    assert first[0].expected.records[0] != other[0].expected.records[0]
    assert [case.name for case in fewer] == ["fork/every_place"]
    assert len(list(stored.iterdir())) == 3


@pytest.mark.parametrize(
    "edit",
    [
        lambda folder: written(folder, f"{CREATED}\nfree_sequence 1 -> 0", name="one"),
        lambda folder: written(folder, CREATED, name="three"),
        lambda folder: (folder / "append" / "two.toml").unlink(),
        lambda folder: (folder / "append" / "two.toml").rename(folder / "append" / "four.toml"),
    ],
    ids=["edited", "added", "removed", "renamed"],
)
def test_cases_that_changed_are_loaded_again(folder: Path, edit: Callable[[Path], object]) -> None:
    """Whatever changed of their files."""
    before = cases_of(folder)
    edit(folder)
    after = cases_of(folder)

    assert after == case_files.load_folder(folder, lab().grammar, seed=1) != before


def test_a_mistake_is_told_although_the_cases_were_right_before(folder: Path) -> None:
    """Each time, since nothing of them is stored."""
    written(folder, "create_sequence 1 5 -> NULL", name="one")
    for _ in range(2):
        with pytest.raises(CaseFileError, match="claims NULL, the reference returns seq"):
            cases_of(folder)


def test_other_code_loads_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reference or the loader did before it changed is worth nothing."""
    monkeypatch.setattr(storage, "_code", lambda: "other code")
    monkeypatch.setattr(case_files, "load_folder", never)

    with pytest.raises(AssertionError, match="loaded again"):
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


@pytest.mark.parametrize("damaged", [b"", b"\0" * 100, None], ids=["empty", "zeros", "one bit"])
def test_a_damaged_file_is_replaced(folder: Path, stored: Path, damaged: bytes | None) -> None:
    """It is found by its hash, wherever the damage is."""
    (path,) = stored.iterdir()
    right = path.read_bytes()
    for place in range(0, len(right), 97):
        flipped = right[:place] + bytes([right[place] ^ 1]) + right[place + 1 :]
        path.write_bytes(flipped if damaged is None else damaged)

        assert cases_of(folder) == case_files.load_folder(folder, lab().grammar, seed=1)
        assert path.read_bytes() == right


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


def test_the_sets_written_last_are_kept(folder: Path, stored: Path) -> None:
    """A new seed each time must not fill the disk."""
    for seed in range(2, 22):
        cases_of(folder, seed=seed)
        for age, path in enumerate(sorted(stored.iterdir(), key=lambda path: -path.stat().st_mtime)):
            os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))

    assert len(list(stored.iterdir())) == 16
    assert cases_of(folder, seed=21) == case_files.load_folder(folder, lab().grammar, seed=21)


@pytest.fixture
def known_by_time(folder: Path, stored: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The link to the stored cases of the folder, whose files count as old."""
    monkeypatch.setattr(storage, "_SETTLED_SECONDS", -1e9)
    links = stored.with_name("cases-by-time")
    assert not links.exists()
    cases_of(folder)
    (link,) = links.iterdir()
    return link


def test_what_did_not_change_is_not_read(
    folder: Path, known_by_time: Path, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes and times of the files say so."""
    before = case_files.load_folder(folder, lab().grammar, seed=1)
    monkeypatch.setattr(storage, "read_bytes", never)
    monkeypatch.setattr(case_files, "load_folder", never)

    assert known_by_time.readlink() == next(stored.iterdir())
    assert cases_of(folder) == before


def test_an_edit_that_hides_is_seen(folder: Path, known_by_time: Path) -> None:
    """A file of the same size, with the time of writing set back: the time of its change cannot be set."""
    path = folder / "append" / "one.toml"
    status = path.stat()
    time.sleep(0.05)  # longer than a tick of the file system's clock
    path.write_text(path.read_text(encoding="utf-8").replace("create_sequence 1", "create_sequence 2"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    after = cases_of(folder)

    assert path.stat().st_size == status.st_size
    assert after == case_files.load_folder(folder, lab().grammar, seed=1)
    assert "create_sequence 2" in str(after[0].trace.operations[1])
    assert len(list(known_by_time.parent.iterdir())) == 2


def test_files_that_may_change_within_the_tick_are_read(folder: Path, stored: Path) -> None:
    """They were written a moment ago."""
    path = folder / "append" / "one.toml"
    cases_of(folder)

    assert path.stat().st_ctime > time.time() - 60
    assert not stored.with_name("cases-by-time").exists()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"\0" * 100)], ids=["gone", "damaged"])
def test_a_link_to_nothing_is_of_no_use(
    folder: Path, known_by_time: Path, stored: Path, spoil: Callable[[Path], object]
) -> None:
    """What it should lead to is made again."""
    (place,) = stored.iterdir()
    right = place.read_bytes()
    spoil(place)

    assert cases_of(folder) == case_files.load_folder(folder, lab().grammar, seed=1)
    assert known_by_time.read_bytes() == right


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


@pytest.mark.parametrize(
    "opened", [*(entry.open for entry in LABS.values()), counter, toy], ids=[*LABS, "counter", "toy"]
)
def test_the_cases_of_every_lab_are_stored(
    stored: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[], Lab]
) -> None:
    """Also of one whose model is a partial, with its random traces."""
    chosen = opened()
    first = case_selection.load_cases(chosen.cases, chosen.grammar, seed=1)

    assert len(list(stored.iterdir())) == 1
    monkeypatch.setattr(case_files, "load_folder", never)
    assert case_selection.load_cases(chosen.cases, chosen.grammar, seed=1) == first
