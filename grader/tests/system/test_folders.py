"""Private folders know whose they are and are swept; the cache is in the user's folder, or under TMPDIR."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest

from grader.core.errors import DriverError, OutOfRoom
from grader.system import folders
from grader.tests.support.command import ROOT, environment
from grader.tests.support.confined import as_root

_OURS = (os.geteuid(),)
_HOLDING = """
import os, sys, time
from grader.system.folders import private_folder
with private_folder(None) as folder:
    (folder / "deep" / "shut").mkdir(parents=True)
    (folder / "deep" / "shut" / "file").write_bytes(b"x" * 1000)
    (folder / "deep").chmod(0)
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def _holder(temporary: Path) -> tuple[subprocess.Popen[str], Path]:
    """Another process with a private folder there."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDING],
        cwd=ROOT,
        env=environment(TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_killed_graders_folder_is_swept(temporary: Path) -> None:
    """Not while it lives; at once when it is dead, whatever is in it."""
    process, folder = _holder(temporary)
    folders.remove_abandoned(_OURS)
    in_use = folder.is_dir()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    left = folder.is_dir()
    folders.remove_abandoned(_OURS)

    assert (in_use, left, list(temporary.iterdir())) == (True, True, [])


@as_root
def test_what_belongs_to_others_is_not_swept(temporary: Path) -> None:
    """Nor what has another name, is no folder, or only leads to one."""
    others = temporary / f"grade-999999999-1-{'1' * 16}"
    others.mkdir()
    os.chown(others, 12345, 12345)
    target = temporary / "target"
    target.mkdir()
    (temporary / f"grade-999999999-1-{'2' * 16}").symlink_to(target)
    (temporary / f"grade-999999999-1-{'3' * 16}").write_text("a file", encoding="utf-8")
    (temporary / "grade-mine").mkdir()
    before = sorted(temporary.iterdir())
    folders.remove_abandoned(_OURS)

    assert sorted(temporary.iterdir()) == before


@as_root
def test_a_folder_whose_user_still_runs_something_waits(temporary: Path) -> None:
    """He could put a link where we remove; when he is done it goes."""
    user = 61_999
    folder = temporary / f"grade-999999999-1-{'4' * 16}"
    folder.mkdir()
    os.chown(folder, user, user)
    process = subprocess.Popen(["sleep", "60"], user=user, group=user)
    folders.remove_abandoned((user,))
    waited = folder.is_dir()
    process.kill()
    process.wait()
    folders.remove_abandoned((user,))

    assert (waited, folder.exists()) == (True, False)


_NOWHERE = "/proc/home"
"""A home that nobody can make, root included."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder under TMPDIR, for a user without a home; it does not exist yet."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", _NOWHERE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"paged-kv-grader-{os.geteuid()}"


def test_a_user_without_a_name_has_the_folder_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a number."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setattr(folders, "_is_there", lambda _: False)

    assert folders.cache_folder() == place


@pytest.mark.parametrize(
    ("name", "path", "instead"), [("XDG_CACHE_HOME", "rel", f"{_NOWHERE}/.cache"), ("HOME", ".", "/.cache")]
)
@pytest.mark.usefixtures("place")
def test_a_relative_path_is_no_cache_folder(
    monkeypatch: pytest.MonkeyPatch, name: str, path: str, instead: str
) -> None:
    """It would lead into the folder where the caller stands, such as that of a student."""
    monkeypatch.setenv(name, path)

    assert folders.users_cache_folder().parent == Path(instead)


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
        folders.cache_folder()


@as_root
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
@pytest.mark.parametrize("there", [".", ".cache/paged-kv-grader"])
def test_root_leaves_nothing_in_another_users_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch, variable: str, there: str
) -> None:
    """As with `sudo -E`: that user could not remove it. Nor does root execute what that user has put there."""
    home = place.parent / "home"
    (home / there).mkdir(parents=True)
    for folder in (home, *home.rglob("*")):
        os.chown(folder, 61_000, 61_000)
    before = list(home.rglob("*"))
    monkeypatch.setenv(variable, str(home if variable == "HOME" else home / ".cache"))

    assert folders.cached([b"part"], lambda folder: (folder / "made").touch()).parent == place
    assert list(home.rglob("*")) == before


def _shared(place: Path) -> None:
    place.mkdir()
    place.chmod(0o770)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        pytest.param(_anothers, "belongs to another user (ID 61000): remove it as that user, or", marks=as_root),
        (_shared, "is writable by other users; remove it, or"),
    ],
)
def test_a_refused_cache_says_why(
    place: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path], None], says: str
) -> None:
    """One that root left in a user's home belongs to root, and nobody else can write to it."""
    users = place.parent / "paged-kv-grader"
    plant(users)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parent))
    with pytest.raises(DriverError, match=re.escape(f"{users} {says} set XDG_CACHE_HOME to a folder of your own")):
        folders.cache_folder()


def test_a_cache_that_cannot_be_filled_is_no_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing rename is an error, unless another grader has made the folder."""

    def full(self: Path, target: Path) -> Path:
        raise OSError(ENOSPC, "No space left on device", str(self), None, str(target))

    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parent / "nowhere"))
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OutOfRoom, match="No space left on device"):
        folders.cached([b"x"], lambda _: None)


def test_a_folder_that_others_can_replace_is_refused(place: Path) -> None:
    """Unlike /tmp, where only its owner renames a folder."""
    place.parent.chmod(0o777)
    with pytest.raises(DriverError, match="other users can replace what is in"):
        folders.cache_folder()
    place.parent.chmod(0o1777)

    assert folders.cache_folder() == place
