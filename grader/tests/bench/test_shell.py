"""The lines of `grade run` from the shell: that they name what runs, and add up."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.bench.targets import ShellRun
from grader.core.errors import DriverError
from grader.tests.support.command import SAMPLES

_SAMPLE = SAMPLES / "accepted" / "visitor_camel_case_allman"


def test_other_scripts_cannot_be_measured(tmp_path: Path) -> None:
    """A script that does not start the interpreter as ours does, and one that fails."""
    shell = ShellRun(tmp_path, _SAMPLE, tmp_path / "notes.json")
    (tmp_path / "grade").write_text("exit 0\n")
    with pytest.raises(DriverError, match="cannot be measured"):
        shell.run()

    (tmp_path / "grade").write_text('echo no >&2; exit 3; exec "python" -m grader "$@"\n')
    with pytest.raises(DriverError, match="scripts/grade: no"):
        shell.run()
