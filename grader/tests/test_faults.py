"""A few of the fault trials (fault_trials.py has them all): a machine in trouble changes no verdict."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from grader.tests.support.command import ROOT, environment
from grader.tests.trials.fault_trials import TRIALS

_FEW = ("disk of 2048 KB", "ld: exit later", "ulimit -f 128")
_COUNT = 3


def _trials(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grader.tests.trials.fault_trials", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.timeout(300)
def test_no_verdict_comes_of_a_machine_in_trouble() -> None:
    """From a disk that is too small, a linker that begins to fail, a limit on files; the next run grades the rest."""
    done = _trials("--class", f"{_COUNT}", *(word for name in _FEW for word in ("--only", name)))
    lines = done.stdout.splitlines()
    if "skipped" in lines[0]:
        pytest.skip(lines[0])

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(" ")[0] for line in lines[:-1]] == ["holds"] * (len(lines) - 1)
    assert len(lines) - 1 == len(_FEW)
    assert not all(f"{_COUNT} graded, exit 1; then" in line for line in lines[:-1])


def test_there_are_trials_enough() -> None:
    """Five gradings each, more than four hundred in all; every name once."""
    names = [trial.name for trial in TRIALS]

    assert len(names) * 5 >= 400
    assert len(set(names)) == len(names)
