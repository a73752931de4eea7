"""What the grader compiles for itself is in the user's cache, or under TMPDIR where that cannot be written."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.core.errors import DriverError
from grader.system import build_cache
from grader.tests.support.command import FEW, SAMPLES, grade

_NOWHERE = "/proc/home"
"""A home that nobody can make, root included."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder under TMPDIR, for a user without a home; it does not exist yet."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", _NOWHERE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"paged-kv-grader-{os.geteuid()}"


def test_a_user_without_a_home_grades() -> None:
    """In a private folder under TMPDIR; `grade doctor` says so."""
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o755)  # students' programs run as another user
        variables = {"HOME": _NOWHERE, "XDG_CACHE_HOME": "", "TMPDIR": temporary, "COLUMNS": "400"}
        graded = grade("run", SAMPLES / "accepted" / "yoda_crlf", *FEW, variables=variables)
        checked = grade("doctor", variables=variables)
        place = Path(temporary, f"paged-kv-grader-{os.geteuid()}")

        assert (graded.code, checked.code) == (0, 0), graded.all + checked.all
        assert place.stat().st_mode & 0o777 == 0o700
        assert len([*place.glob("*/confine")]) == 1
        assert f"cache: {place}, because {_NOWHERE}/.cache/paged-kv-grader cannot be written; XDG" in checked.out


def test_a_folder_is_made_once_for_its_user_alone(place: Path) -> None:
    """And used again."""
    umask = os.umask(0)
    try:
        made = build_cache.cached([b"x"], lambda folder: (folder / "y").touch())
    finally:
        os.umask(umask)

    assert (made.parent, place.stat().st_mode & 0o777) == (place, 0o700)
    assert build_cache.cached([b"x"], lambda _: pytest.fail("made twice")) == made


def test_a_home_that_cannot_be_written_any_more_is_still_read(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is not there yet is made elsewhere."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    before = build_cache.cached([b"x"], lambda _: None)
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert before.is_relative_to(home)
    assert build_cache.cached([b"x"], lambda _: None) == before
    assert build_cache.cached([b"y"], lambda _: None).parent == place


def test_a_user_without_a_name_has_the_folder_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setattr(build_cache, "_is_there", lambda _: False)

    assert build_cache.folder() == place


def _link(place: Path) -> None:
    (place.parent / "elsewhere").mkdir(mode=0o700)
    place.symlink_to("elsewhere")


def _open(place: Path) -> None:
    place.mkdir()
    place.chmod(0o750)


def _anothers(place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, 61_000, 61_000)


@pytest.mark.parametrize("plant", [_link, _open, pytest.param(_anothers, marks=as_root)])
def test_a_planted_folder_is_refused(place: Path, plant: Callable[[Path], None]) -> None:
    """What is in it would be linked into graded programs."""
    plant(place)
    with pytest.raises(DriverError, match=re.escape(f"{place} is not a folder of this user alone; remove it, or set")):
        build_cache.folder()


def test_a_folder_that_others_can_replace_is_refused(place: Path) -> None:
    """Unlike /tmp, where only its owner renames a folder."""
    place.parent.chmod(0o777)
    with pytest.raises(DriverError, match="other users can replace what is in"):
        build_cache.folder()
    place.parent.chmod(0o1777)

    assert build_cache.folder() == place
