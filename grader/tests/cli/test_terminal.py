"""What a terminal and a pipe show, what is told while a batch runs, and streams that fail."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

from grader.classroom.workers import Graded
from grader.cli.app import app
from grader.cli.terminal import Progress, progress
from grader.tests.classroom.test_store import kept
from grader.tests.support.command import ROOT, SAMPLES, command, environment, grade

_QUICK = ("--case", "append/copy_*", "--without-memory-checker")


def ended(redirection: str, *words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    """The command, started by a shell with that behind it."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *command(*words)],
        cwd=cwd, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip


_DEAD = {
    "full disk": "2>/dev/full",
    "closed": "2>&-",
    "all closed": "<&- 2>&-",
}


@pytest.mark.parametrize("how", ["full disk", "closed", "all closed"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("cases", "--lab", "paged_kv"), 0),
        (("runs", "--store", "/none.sqlite"), 2),
        (("no-such-command",), 2),
        (("run", SAMPLES / "accepted" / "yoda_crlf", *_QUICK), 0),
        (("run", SAMPLES / "wrong_answer" / "all_null", *_QUICK), 1),
    ],
    ids=["cases", "no store", "no command", "right", "wrong"],
)
def test_a_dead_stderr_changes_no_exit_code(how: str, words: tuple[str | Path, ...], code: int) -> None:
    """Nor does it end a command early."""
    done = ended(_DEAD[how], *words)

    assert (done.returncode, done.stderr) == (code, b"")
    assert bool(done.stdout) == (code < 2)


@pytest.mark.parametrize("full", ["a.json", "b.html"])
def test_a_report_that_has_no_room_is_named(
    full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to do; the files have no points, for the grading did not come to its end, or are as before."""
    (tmp_path / full).write_text("before", encoding="utf-8")
    usual = os.fsync

    def kept(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name.startswith(f".{full}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        usual(descriptor)

    monkeypatch.setattr(os, "fsync", kept)
    right = str(SAMPLES / "accepted" / "yoda_crlf")
    files = ("--format", "json", "--output", str(tmp_path / "a.json"), "--also", f"html={tmp_path / 'b.html'}")
    code = app(["run", right, *_QUICK, *files])

    place = f"{tmp_path / full} could not be written: No space left on device. Make room there, or write somewhere else"
    assert (code, capsys.readouterr().err) == (3, f"grade: {place}\n(This costs nobody a point.)\n")
    assert (tmp_path / full).read_text(encoding="utf-8") == "before"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("option", [("--output",), ("--format", "csv", "--output"), ("--also", "json=")])
def test_a_report_that_nobody_can_write_is_a_wrong_path(option: tuple[str, ...]) -> None:
    """Root may write into /proc, and yet makes no file there: it is said with the path, and nobody is at fault."""
    *before, last = option
    words = [*before, f"{last}/proc/x"] if last.endswith("=") else [*before, last, "/proc/x"]
    ended_with = grade("run", SAMPLES / "accepted" / "yoda_crlf", *_QUICK, *words)

    assert ended_with.code == 2
    assert re.search(
        r"/proc/x(: no permission to write to /proc| cannot be written: .*; write another path)$", ended_with.err
    )


def test_all_that_is_counted_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Done, failing, without a score, rate, time left; what was there before does not make it look quick."""
    with progress(1000, done=900, failing=5) as tell:
        tell.started -= 10
        tell(Graded(key="a", stored=kept("a")), 1)
        tell(Graded(key="b", failure="no time"), 3)
        assert capsys.readouterr().err == ""
        tell.last_report -= 60
        tell(Graded(key="c", stored=kept("c")), 1)
        line = capsys.readouterr().err

    told = r"905 of 1000 done, 7 failing, 3 without a score, 0\.\d a second, \d:\d\d min left\n"
    assert re.fullmatch(told, line)
    assert re.fullmatch(told, capsys.readouterr().err)


def test_long_times_are_told_in_hours() -> None:
    """Nobody counts 9000 seconds."""
    slow = Progress(total=1000, done=100, failing=0, graded=100, started=time.monotonic() - 1000)

    assert slow.rest().endswith("0.1 a second, 2:30 h left")
