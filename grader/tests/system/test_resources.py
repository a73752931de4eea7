"""A machine that has too little left, or executes nothing, says so with the place and the remedy; nothing is graded."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.core.errors import CannotStart, OutOfRoom
from grader.system import process
from grader.system.folders import cache_folder
from grader.system.sandbox import workspace
from grader.tests.support.confined import SHORT, as_root


def _system(*, free: int = 1 << 19, free_files: int = 1 << 19, flags: int = 0) -> object:
    """What statvfs says of a file system with blocks of 4 KB."""
    return os.statvfs_result((4096, 4096, 1 << 20, free, free, 1 << 20, free_files, free_files, flags, 255))


@pytest.mark.parametrize(
    ("system", "says"),
    [
        (_system(free=256), "has 1.0 MB left"),
        (_system(free=4095), "has 16.0 MB left"),
        (_system(free=0), "has 0.0 MB left"),
        (_system(free_files=12), "has room for 12 more files"),
    ],
)
def test_a_nearly_full_disk_is_told_before_anything_is_graded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: object, says: str
) -> None:
    """With the folder, what is left, what is needed and what to set."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", lambda _: system)
    with pytest.raises(OutOfRoom) as caught, workspace():
        pass

    assert f"{tmp_path} {says}" in str(caught.value)
    assert "TMPDIR" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_ours_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its place and the system's reason."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with workspace() as work:
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OutOfRoom, match=rf"{work.folder}/ours: No space left on device. .*TMPDIR"):
            work.add("ours", b"x")


def test_a_folder_mounted_noexec_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a submission's program TMPDIR, for the launcher the cache; other programs have other troubles."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with workspace() as work:
        monkeypatch.setattr(os, "statvfs", lambda _: _system(flags=os.ST_NOEXEC))
        for place in (work.folder, cache_folder()):
            (place / "program").write_text("#!/bin/sh\n", encoding="utf-8")
        with pytest.raises(CannotStart, match=rf"in {tempfile.gettempdir()}: .* mounted noexec. Set TMPDIR to"):
            work.run(["./program"], limits=SHORT)
        with pytest.raises(CannotStart, match=rf"in {cache_folder()}: .* mounted noexec. Set XDG_CACHE_HOME to"):
            process.run(["./program"], cwd=cache_folder(), limits=SHORT, environment={})
        with pytest.raises(CannotStart, match="no-such-program: No such file"):
            work.run(["no-such-program"], limits=SHORT)


@as_root
def test_a_temporary_folder_that_submissions_cannot_enter_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Callable[..., None]
) -> None:
    """As one below /root, where Python does not find the harness: a right submission would have no points."""
    bare("bubblewrap")  # in which all folders above are new ones
    tmp_path.chmod(0o755)
    (tmp_path / "closed").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "closed"))
    with pytest.raises(CannotStart, match=r"may not enter /.*: set TMPDIR to another folder"), workspace():
        pass
