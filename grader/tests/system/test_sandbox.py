"""The private folder in which a student's code is compiled and run, and what that code may do there."""

from __future__ import annotations

import os
import re
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grader.core.errors import CannotStart, Unprotected
from grader.system import sandbox
from grader.system.sandbox import COMPILE_LIMITS, LEVELS, RUN_LIMITS, Limits, require, workspace
from grader.tests.support.confined import LOOKING, SHORT, as_root, inside, run

# ---------------------------------------------------------------- what is active is said


@as_root
def test_a_students_code_is_not_root() -> None:
    """Where we are root it runs as a user who is nobody else, wherever our Python is installed."""
    uid, gid, groups = inside("id -u; id -g; id -G").splitlines()

    assert int(uid) not in (0, os.getuid())
    assert gid == uid
    assert groups == uid
    assert "unprivileged user" in sandbox.protection().active


_MISSING = (
    *((), ("bubblewrap",), ("landlock",), ("seccomp",), ("user",)),
    *(("landlock", "bubblewrap"), ("seccomp", "bubblewrap"), ("user", "bubblewrap")),
    ("landlock", "seccomp", "user", "bubblewrap"),
)


@pytest.mark.parametrize("missing", _MISSING, ids="-".join)
def test_protection_says_what_is_active(bare: Callable[..., None], missing: tuple[str, ...]) -> None:
    """What the kernel says of a program is what the record says."""
    bare(*missing)
    protection = sandbox.protection()
    shown = dict(line.split(":", 1) for line in inside("cat /proc/$$/status", limits=LOOKING).splitlines())
    with workspace() as work:
        opened = work.run(["sh", "-c", "cat /etc/passwd /etc/ld.so.cache"], limits=SHORT)
        outside = work.run(["readlink", "/proc/self/ns/pid"], limits=LOOKING).stdout.decode().strip()
    kept_out = not opened.stdout.startswith(b"root:")

    assert shown["NoNewPrivs"].strip() == "1"
    assert shown["CapEff"].strip("0\t ") == shown["CapPrm"].strip("0\t ") == shown["CapAmb"].strip("0\t ") == ""
    assert "no privileges" in protection.active
    assert ("seccomp" in protection.active) == (shown["Seccomp"].strip() == "2")
    assert ("unprivileged user" in protection.active) == (shown["Uid"].split()[0] != str(os.geteuid()))
    assert ("bubblewrap" in protection.active) == (outside != str(Path("/proc/self/ns/pid").readlink()))
    closed = [one for one in protection.active if one.startswith("Landlock") or one == "bubblewrap"]
    assert bool(closed) == kept_out
    level = "bubblewrap" if "bubblewrap" in protection.active else "confine"
    assert protection.level == (level if "seccomp" in protection.active else "limits")


@pytest.mark.parametrize("missing", _MISSING, ids="-".join)
def test_less_than_was_demanded_is_refused(bare: Callable[..., None], missing: tuple[str, ...]) -> None:
    """What is active, and all below it, is enough."""
    bare(*missing)
    here = LEVELS.index(sandbox.protection().level)
    for level in LEVELS[: here + 1]:
        require(level)
    for level in LEVELS[here + 1 :]:
        with pytest.raises(Unprotected, match=f"not '{level}'"):
            require(level)


def test_what_was_asked_for_is_active_or_nothing_starts() -> None:
    """A word that cannot be done is our fault, told as such."""
    with workspace() as work, pytest.raises(CannotStart, match="no-such-program: No such file"):
        work.run(["no-such-program"], limits=SHORT)
    with workspace() as work, pytest.raises(CannotStart, match="user: "):
        replace(work, user=(1 << 32) - 1).run(["true"], limits=SHORT)


# ---------------------------------------------------------------- the environment and the folder


def test_secrets_of_ours_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four plain variables; HOME and TMPDIR lead into the folder."""
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    shown = dict(line.split("=", 1) for line in inside("env").splitlines())
    folder = shown.pop("PWD")

    assert shown == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C",
        "TMPDIR": folder,
        "HOME": folder,
    }


def test_only_standard_descriptors_are_open(tmp_path: Path) -> None:
    """Nothing of ours, of the launcher's, or of another grading."""
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        targets = inside("for fd in /proc/$$/fd/*; do readlink $fd; done; cat", limits=LOOKING).split()

    assert [target.partition(":")[0] for target in targets] == ["/dev/null", "pipe", "pipe"]


def test_no_signal_is_blocked_or_ignored() -> None:
    """Whatever our own process has done to its signals."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        shown = inside("grep -E '^Sig(Blk|Ign)' /proc/self/status", limits=LOOKING)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGUSR2, before)

    assert [int(line.split()[1], 16) for line in shown.splitlines()] == [0, 0]


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


_HARD_TO_REMOVE = {
    "deep": "i=0; while [ $i -lt 1500 ]; do mkdir d e && ln -s / l && cd -P d; i=$((i+1)); done",
    "shut": "mkdir -p a/b/c; touch a/b/file; chmod 0 a/b/c a/b a; chmod 500 .",
    "oddly named": r"mkdir -p \"$(printf 'a\\nb')/-rf/$(printf '\\377')/*\"; mkfifo ..a ...",
}


@pytest.mark.parametrize("script", _HARD_TO_REMOVE.values(), ids=_HARD_TO_REMOVE)
def test_no_folder_is_too_hard_to_remove(script: str) -> None:
    """Deeper than Python's recursion or a path may be, closed, or with any name: it goes away with the workspace."""
    with workspace() as work:
        done = work.run(["sh", "-c", script], limits=SHORT)

        assert done.succeeded, done.stderr
    assert not work.folder.exists()


@pytest.mark.parametrize("script", ["mkdir -p ours/full", "mkfifo ours", "ln -s / ours", "ln -s nowhere/file ours"])
def test_our_file_takes_the_place_of_whatever_is_there(script: str) -> None:
    """What ran before may have put anything under its name."""
    with workspace() as work:
        assert work.run(["sh", "-c", script], limits=SHORT).succeeded

        work.add("ours", b"right\n")

        assert (work.folder / "ours").read_bytes() == b"right\n"
        assert not (work.folder / "ours").is_symlink()


# ---------------------------------------------------------------- limits


def test_limits_are_active_inside() -> None:
    """They come from the kernel, so the program itself can show them."""
    limits = Limits(cpu_seconds=7, address_space=1 << 30, file_size=4096, open_files=20, sees_processes=True)
    shown = {
        line[:26].strip(): line[26:].split()[:2] for line in inside("cat /proc/self/limits", limits=limits).splitlines()
    }

    assert shown["Max cpu time"] == ["7", "7"]
    assert shown["Max address space"] == [str(1 << 30)] * 2
    assert shown["Max file size"] == ["4096", "4096"]
    assert shown["Max open files"] == ["20", "20"]
    assert shown["Max core file size"] == ["0", "0"]


def test_limits_above_our_own_are_lowered_to_them() -> None:
    """A machine that allows us less must not stop the grading."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert run("exit 0", limits=Limits(open_files=hard + 1)).succeeded


def test_a_busy_loop_meets_the_cpu_limit() -> None:
    """And its CPU time is told."""
    done = run("while :; do :; done", limits=Limits(wall_seconds=20, cpu_seconds=1))

    assert done.signal in (signal.SIGXCPU, signal.SIGKILL)
    assert not done.timed_out
    assert 0.8 < done.cpu_seconds < 3


def test_a_file_may_not_grow_beyond_the_limit() -> None:
    """A full disk would hurt others."""
    done = run("head -c 100000 /dev/zero >big; ls -s big", limits=Limits(wall_seconds=20, file_size=4096))

    assert int(done.stdout.split()[0]) <= 8


@pytest.mark.parametrize("limits", [COMPILE_LIMITS, RUN_LIMITS], ids=["compile", "run"])
def test_the_limits_in_use_are_bounded(limits: Limits) -> None:
    """Time, memory, files: none is left open."""
    shown = inside("cat /proc/self/limits", limits=replace(limits, sees_processes=True))
    soft = {line[:26].strip(): line[26:].split()[0] for line in shown.splitlines()}

    for name in ("Max cpu time", "Max address space", "Max file size", "Max open files"):
        assert re.fullmatch(r"\d+", soft[name]), name
    assert soft["Max core file size"] == "0"


@pytest.mark.parametrize("who", [(), ("user",)], ids=["as nobody", "as ourselves"])
def test_nothing_lives_on_at_the_lowest_level(bare: Callable[..., None], who: tuple[str, ...]) -> None:
    """Whatever it did to its session and its environment."""
    bare("landlock", "seccomp", "bubblewrap", *who)
    left = inside("for i in 1 2; do setsid env -i setsid sh -c 'echo $$; exec sleep 600' & done; sleep 0.5")

    assert len(left.split()) == 2
    assert [process for process in left.split() if Path("/proc", process).exists()] == []


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
