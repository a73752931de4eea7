"""The lines of `grade run` from the shell: that they name what runs, and add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.bench.figures import rounds_of
from grader.bench.shell import SHELL_RUN, ShellRun
from grader.core.errors import DriverError
from grader.tests.support.command import ROOT, SAMPLES

_SAMPLE = SAMPLES / "accepted" / "visitor_camel_case_allman"


def quiet(_: str) -> None:
    """Tells nobody."""


def test_the_lines_add_up_to_the_whole(tmp_path: Path) -> None:
    """Scripts, interpreter, stages and programs; what is unexplained is little."""
    shell = ShellRun(ROOT / "scripts", _SAMPLE, tmp_path / "notes.json")
    taken = rounds_of(shell.candidates(), 1, quiet)
    group = shell.group({"G": [0.1], **taken})
    whole, *lines = group.figures
    names = {line.name.removesuffix(" / G") for line in lines}

    assert group.title.startswith(SHELL_RUN)
    assert whole.value == pytest.approx(taken[SHELL_RUN][0] / 0.1)
    assert sum(line.value for line in lines) == pytest.approx(whole.value)
    assert abs(lines[-1].value) < 0.15 * whole.value, lines
    assert {"interpreter: start", "imports", "stage inspect", "program gcc", "program valgrind"} <= names


def test_other_scripts_cannot_be_measured(tmp_path: Path) -> None:
    """A script that does not start the interpreter as ours does, and one that fails."""
    shell = ShellRun(tmp_path, _SAMPLE, tmp_path / "notes.json")
    (tmp_path / "grade").write_text("exit 0\n")
    with pytest.raises(DriverError, match="cannot be measured"):
        shell.run()

    (tmp_path / "grade").write_text('echo no >&2; exit 3; exec "python" -m grader "$@"\n')
    with pytest.raises(DriverError, match="scripts/grade: no"):
        shell.run()
