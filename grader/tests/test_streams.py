"""Who does not read stderr changes nothing: the same work, the same exit code; stdout that fails is said."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from grader.tests.command import ROOT, SAMPLES, command, environment

_QUICK = ("--case", "append/copy_*", "--without-valgrind")


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
    assert ended("", "export", cwd=tmp_path).returncode == 0


def test_a_stdout_that_fails_is_said() -> None:
    """A full disk is not a wrong answer."""
    done = ended(">/dev/full", "cases")
    assert (done.returncode, b"stdout: No space left on device" in done.stderr) == (3, True)
    assert b"Exception ignored" not in done.stderr
