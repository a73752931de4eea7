"""How wide and how colourful what is printed may be: on a terminal, on a dumb one, in a pipe."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from grader.tests.support.command import FEW, ROOT, SAMPLES, command, environment, grade

_RIGHT = SAMPLES / "accepted" / "yoda_crlf"
_ASKED = [60, 120]
_WRONG = SAMPLES / "wrong_answer" / "all_null"


def on_terminal(*words: str | Path, cwd: Path = ROOT, **variables: str) -> tuple[int, str]:
    """The exit code of a command on a terminal of its own, and all that it writes there."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        command(*words), cwd=cwd, env=environment(ROOT, **variables), stdin=its, stdout=its, stderr=its
    ) as process:
        os.close(its)
        parts = []
        while part := _read(ours):
            parts.append(part)
        code = process.wait(timeout=120)
    os.close(ours)
    return code, b"".join(parts).decode()


def width_of(text: str) -> int:
    """That of its longest line."""
    return max(map(len, text.splitlines()))


def _read(end: int) -> bytes:
    try:
        return os.read(end, 1 << 16)
    except OSError:  # what Linux says when nobody has the other end any longer
        return b""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", _WRONG, *FEW, "--without-memory-checker"), 1, "Points"),
        (("batch", "class", *FEW, "--without-memory-checker", "--jobs", "1"), 0, "1 of 1 done, 0 failing"),
        (("cases",), 0, "append/three_sharers"),
        (("explain", "append/three_sharers"), 0, "append_kv"),
        (("--help",), 0, "Usage"),
    ],
    ids=["run", "batch", "cases", "explain", "help"],
)
def test_a_dumb_terminal_gets_no_escape_sequences(
    tmp_path: Path, words: tuple[str | Path, ...], code: int, says: str
) -> None:
    """No colours, no live line, not even where FORCE_COLOR is set; elsewhere there are some."""
    shutil.copytree(_RIGHT, tmp_path / "class" / "yoda")
    clever = on_terminal(*words, cwd=tmp_path, TERM="xterm")
    (tmp_path / "grades.sqlite").unlink(missing_ok=True)
    dumb = on_terminal(*words, cwd=tmp_path, TERM="dumb", FORCE_COLOR="1")

    assert "\x1b" in clever[1]
    assert "\x1b" not in dumb[1]
    assert (dumb[0], says in dumb[1]) == (code, True)


@pytest.mark.parametrize(
    ("words", "usual"),
    [
        (("run", _WRONG, *FEW, "--without-memory-checker"), 100),
        (("cases",), 160),
        (("explain", "append/three_sharers"), 100),
    ],
    ids=["run", "cases", "explain"],
)
def test_a_pipe_is_as_wide_as_columns_says(words: tuple[str | Path, ...], usual: int) -> None:
    """Without it as wide as always, and with nonsense in it too."""
    said = grade(*words).out
    asked = {
        width: max(map(len, grade(*words, variables={"COLUMNS": str(width)}).out.splitlines())) for width in _ASKED
    }

    assert asked == {width: width for width in _ASKED}
    assert usual - 5 < max(map(len, said.splitlines())) <= usual
    assert {grade(*words, variables={"COLUMNS": odd}).out for odd in ("0", "wide", "")} == {said}


def test_a_file_is_as_wide_as_always(tmp_path: Path) -> None:
    """It may be read elsewhere."""
    words = ("run", _WRONG, *FEW, "--without-memory-checker", "--output")
    grade(*words, tmp_path / "a.txt")
    grade(*words, tmp_path / "b.txt", variables={"COLUMNS": "60"})

    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "b.txt").read_bytes()
