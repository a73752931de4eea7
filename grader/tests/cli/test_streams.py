"""Who does not read stderr changes nothing: the same work, the same exit code; stdout that fails is said."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from grader.cli.app import app
from grader.core.record import from_json
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
        (("cases",), 0),
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


@pytest.mark.parametrize("how", ["full disk", "closed", "pipe"])
def test_a_batch_goes_on_without_stderr(tmp_path: Path, how: str) -> None:
    """All are graded, and the store is whole: nothing was written into it that was meant for stderr."""
    shutil.copytree(SAMPLES / "accepted" / "yoda_crlf", tmp_path / "in" / "yoda")
    words = command("batch", "in", *_QUICK, "--jobs", "1")
    if how == "pipe":
        with subprocess.Popen(
            words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            process.stderr.close()
            assert process.stdout is not None
            out, code = process.stdout.read(), process.wait(timeout=120)
    else:
        done = ended(_DEAD[how], "batch", "in", *_QUICK, "--jobs", "1", cwd=tmp_path)
        out, code = done.stdout, done.returncode

    assert (code, b"1 accepted, 0 not" in out) == (0, True)
    assert grade("export", cwd=tmp_path).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("cases",),
        ("--help",),
        ("run", SAMPLES / "accepted" / "yoda_crlf", *_QUICK),
        ("run", SAMPLES / "wrong_answer" / "all_null", *_QUICK, "--format", "csv"),
    ],
    ids=["cases", "help", "run", "table"],
)
def test_a_stdout_that_fails_is_said(words: tuple[str | Path, ...]) -> None:
    """Once; a full disk is not a wrong answer."""
    done = ended(">/dev/full", *words)

    assert done.returncode == 3
    assert done.stderr.decode() == (
        "grade: stdout could not be written: No space left on device. Make room there, or write somewhere else\n"
        "(This costs nobody a point.)\n"
    )


@pytest.mark.parametrize(("redirection", "code"), [(">/dev/full", "3"), ("| true", "141")])
def test_where_only_stdout_fails_the_files_are_whole(tmp_path: Path, redirection: str, code: str) -> None:
    """The grading came to its end before."""
    asked = ("run", SAMPLES / "wrong_answer" / "all_null", *_QUICK, "--also", f"json={tmp_path / 'a.json'}")
    shell = 'file=$1; shift; { "$@"; echo $? >"$file"; }'
    subprocess.run(
        ["sh", "-c", f"{shell} {redirection}", "sh", tmp_path / "code", *command(*asked)],
        cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False,
    )  # fmt: skip

    assert (tmp_path / "code").read_text(encoding="utf-8").strip() == code
    assert from_json((tmp_path / "a.json").read_bytes()).complete


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
        r"/proc/x(: we may not write into /proc| cannot be written: .*; write another path)$", ended_with.err
    )
