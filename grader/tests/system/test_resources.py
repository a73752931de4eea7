"""A machine that has too little left says so before anything is graded, with the place and the remedy."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from grader.core.errors import CannotStart, GraderError, OutOfRoom
from grader.system import process, resources
from grader.system.process import Patience
from grader.system.sandbox import workspace
from grader.tests.support.command import FEW, ROOT, SAMPLES, command, environment
from grader.tests.support.confined import SHORT

_RIGHT = SAMPLES / "accepted" / "course_header_types"


def _system(*, blocks: int = 1 << 20, free: int = 1 << 19, files: int = 1 << 20, free_files: int = 1 << 19) -> object:
    """What statvfs says of a file system with blocks of 4 KB."""
    return os.statvfs_result((4096, 4096, blocks, free, free, files, free_files, free_files, 0, 255))


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


@pytest.mark.parametrize("system", [_system(), _system(blocks=0, free=0), _system(files=0, free_files=0)])
def test_a_disk_with_room_or_without_numbers_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: object
) -> None:
    """Some file systems count no blocks, others no files."""
    monkeypatch.setattr(os, "statvfs", lambda _: system)

    resources.check_room(tmp_path)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (["-v 1000000"], "address space 976.562 MB, needed 4096 MB (ulimit -v)"),
        (["-f 1000"], "(ulimit -f)"),
        (["-n 100"], "open files 100, needed 128 (ulimit -n)"),
        (["-s 1000", "-t 20"], "CPU seconds 20, needed 60 (ulimit -t)"),
    ],
    ids=["memory", "files", "descriptors", "stack and time"],
)
def test_limits_of_the_shell_are_told(limits: Sequence[str], says: str, tmp_path: Path) -> None:
    """Programs that we start have them too, and would be stopped by what no student has done."""
    script = " && ".join([*(f"ulimit {limit}" for limit in limits), 'exec "$@"'])
    done = subprocess.run(
        ["bash", "-c", script, "bash", *command("run", _RIGHT, *FEW, "--without-memory-checker")],
        cwd=ROOT,
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout) == (3, "")
    assert says in done.stderr
    assert "costs nobody a point" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_of_ours_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its place and the system's reason."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with workspace() as work:
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OutOfRoom, match=rf"{work.folder}/ours: No space left on device. .*TMPDIR"):
            work.add("ours", b"x")


def test_a_folder_that_is_gone_is_told() -> None:
    """Somebody tidied /tmp."""
    with workspace() as work:
        work.folder.rmdir()
        with pytest.raises(OutOfRoom, match="No such file or directory"):
            work.add("ours", b"x")
        with pytest.raises(GraderError, match="No such file or directory"):
            work.run(["true"], limits=SHORT)


def test_no_descriptors_left_is_told() -> None:
    """Neither a traceback nor a program that runs unheard."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    for more in range(12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, hard))
        try:
            done = process.run(
                ["true"], cwd=Path("/"), limits=Patience(wall_seconds=10), environment={"PATH": "/bin"}, channels=1
            )
            assert done.succeeded
        except (OutOfRoom, CannotStart) as error:
            assert "open files" in str(error)  # noqa: PT017 - sometimes there are enough
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_kernels_own_count_is_read() -> None:
    """A number that never falls; nothing where there is none."""
    first = resources.memory_kills()

    assert 0 <= first <= resources.memory_kills()
