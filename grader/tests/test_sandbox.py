"""The private folder in which a student's code is compiled and run, and what that code may do there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from grader import sandbox
from grader.process import Limits
from grader.sandbox import COMPILE_LIMITS, RUN_LIMITS, workspace

SHORT = Limits(wall_seconds=20)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")


def inside(script: str, *, limits: Limits = SHORT) -> str:
    """What a script prints in a fresh workspace."""
    with workspace() as work:
        return work.run(["sh", "-c", script], limits=limits).stdout.decode()


@as_root
def test_a_students_code_is_not_root() -> None:
    """Where we are root it runs as a user who is nobody else, wherever our Python is installed."""
    uid, gid, groups = inside("id -u; id -g; id -G").splitlines()

    assert int(uid) not in (0, os.getuid())
    assert gid == uid
    assert groups == uid
    assert sandbox.protection().level == "limits+user"
    assert "unprivileged user" in sandbox.protection().active


def test_protection_says_what_is_active() -> None:
    """The level never promises a user that is not there."""
    with workspace() as work:
        assert ("user" in sandbox.protection().level) == (work.user is not None)
    assert "no new privileges" in sandbox.protection().active


def test_secrets_of_ours_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four plain variables; HOME and TMPDIR lead into the folder."""
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    shown = dict(line.split("=", 1) for line in inside("env").splitlines())
    folder = shown.pop("PWD")
    assert shown.pop("GRADE_RUN")

    assert shown == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C",
        "TMPDIR": folder,
        "HOME": folder,
    }


def test_the_folder_is_private_and_goes_away() -> None:
    """Nobody else may look in; with its end everything in it is gone, closed subfolders too."""
    with workspace() as work:
        done = work.run(["sh", "-c", "mkdir -p a/b && touch a/b/c && chmod 0 a && pwd"], limits=SHORT)
        mode = work.folder.stat().st_mode & 0o777

        assert done.stdout.decode().strip() == str(work.folder)
        assert mode & 0o007 == 0
    assert not work.folder.exists()


def test_the_folder_goes_away_after_an_error_too() -> None:
    """Whatever ends the grading."""
    seen: list[Path] = []

    def interrupted() -> None:
        with workspace() as work:
            seen.append(work.folder)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert len(seen) == 1
    assert not seen[0].exists()


def test_each_workspace_has_a_folder_of_its_own() -> None:
    """What one submission leaves is not there for the next."""
    with workspace() as one, workspace() as other:
        one.add("file", b"x")

        assert one.folder != other.folder
        assert list(other.folder.iterdir()) == []


@as_root
def test_our_files_can_be_read_but_not_written() -> None:
    """The header, the driver and the source are ours while they are compiled."""
    with workspace() as work:
        work.add("ours", b"right\n")
        done = work.run(["sh", "-c", "cat ours; echo wrong >ours || echo refused"], limits=SHORT)

        assert done.stdout == b"right\nrefused\n"
        assert (work.folder / "ours").read_bytes() == b"right\n"


@as_root
def test_files_of_ours_elsewhere_are_closed(tmp_path: Path) -> None:
    """Neither the password file, nor our home, nor a folder of the tests; nor may it write beside its own."""
    (tmp_path / "secret").write_text("hunter2", encoding="utf-8")
    (tmp_path / "secret").chmod(0o600)
    said = inside(f"cat /etc/shadow {tmp_path}/secret; ls {tmp_path}; touch {tmp_path}/x /etc/x /usr/x && echo wrote")

    assert said == ""


@as_root
def test_one_may_not_look_into_or_stop_another(tmp_path: Path) -> None:
    """Neither us by a signal, nor our memory."""
    said = inside(f"kill -0 {os.getpid()} && echo reached; cat /proc/{os.getpid()}/environ && echo seen")

    assert said == ""
    assert tmp_path.is_dir()


@pytest.mark.parametrize("limits", [COMPILE_LIMITS, RUN_LIMITS], ids=["compile", "run"])
def test_the_limits_in_use_are_bounded(limits: Limits) -> None:
    """Time, memory, files: none is left open."""
    shown = inside("cat /proc/self/limits", limits=limits)
    soft = {line[:26].strip(): line[26:].split()[0] for line in shown.splitlines()}

    for name in ("Max cpu time", "Max address space", "Max file size", "Max open files"):
        assert re.fullmatch(r"\d+", soft[name]), name
    assert soft["Max core file size"] == "0"


@as_root
@pytest.mark.timeout(60)
def test_a_flood_of_processes_is_stopped() -> None:
    """The limit counts that user's processes only, and all of them end with the program."""
    script = "i=0; while [ $i -lt 300 ]; do sleep 30 & i=$((i+1)); done; echo all"
    with workspace() as work:
        done = work.run(["sh", "-c", script], limits=RUN_LIMITS)

        assert b"all" not in done.stdout
        assert b"fork" in done.stderr
        again = work.run(["sh", "-c", "sleep 0.1 & wait; echo works"], limits=RUN_LIMITS)
        assert again.stdout == b"works\n"
