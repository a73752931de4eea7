"""Private folders know whose they are, and those of dead graders are swept."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from grader.system import private_folder, sandbox
from grader.tests.support.command import ROOT, environment
from grader.tests.support.confined import as_root

_OURS = (os.geteuid(),)
_HOLDING = """
import os, sys, time
from grader.system.private_folder import private_folder
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
    private_folder.remove_abandoned(_OURS)
    in_use = folder.is_dir()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    left = folder.is_dir()
    private_folder.remove_abandoned(_OURS)

    assert (in_use, left, list(temporary.iterdir())) == (True, True, [])


def test_a_folder_that_somebody_holds_is_not_swept(temporary: Path) -> None:
    """In another container its process has another number; the lock is the same."""
    held = temporary / f"grade-999999999-1-{'0' * 16}"
    held.mkdir()
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    private_folder.remove_abandoned(_OURS)
    in_use = held.is_dir()
    os.close(lock)
    private_folder.remove_abandoned(_OURS)

    assert (in_use, held.exists()) == (True, False)


def test_a_number_that_was_given_anew_is_another_process(temporary: Path) -> None:
    """The name says when its owner began."""
    dead = temporary / f"grade-{os.getpid()}-1-{'0' * 16}"
    dead.mkdir()
    with private_folder.private_folder(None) as folder:
        private_folder.remove_abandoned(_OURS)

        assert folder.is_dir()
    assert list(temporary.iterdir()) == []


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
    private_folder.remove_abandoned(_OURS)

    assert sorted(temporary.iterdir()) == before


@as_root
def test_a_folder_whose_user_still_runs_something_waits(temporary: Path) -> None:
    """He could put a link where we remove; when he is done it goes."""
    user = 61_999
    folder = temporary / f"grade-999999999-1-{'4' * 16}"
    folder.mkdir()
    os.chown(folder, user, user)
    process = subprocess.Popen(["sleep", "60"], user=user, group=user)
    private_folder.remove_abandoned((user,))
    waited = folder.is_dir()
    process.kill()
    process.wait()
    private_folder.remove_abandoned((user,))

    assert (waited, folder.exists()) == (True, False)


def test_a_grader_sweeps_when_it_begins(temporary: Path) -> None:
    """Before its own first folder, without being asked."""
    process, folder = _holder(temporary)
    process.kill()
    process.communicate(timeout=20)
    sandbox._swept.cache_clear()
    with sandbox.workspace() as work:
        assert list(temporary.iterdir()) == [work.folder]
    assert not folder.exists()


def test_many_left_folders_cost_no_time(temporary: Path) -> None:
    """93 were found after 77 kills."""
    for number in range(200):
        (temporary / f"grade-999999999-1-{number:016x}").mkdir()
    started = time.monotonic()
    private_folder.remove_abandoned(_OURS)

    assert list(temporary.iterdir()) == []
    assert time.monotonic() - started < 10
