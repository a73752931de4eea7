"""Shell scripts in a fresh workspace, for the tests of what is allowed there."""

from __future__ import annotations

import os

import pytest

from grader.system.process import Completed
from grader.system.sandbox import Limits, workspace

SHORT = Limits(wall_seconds=20)
LOOKING = Limits(wall_seconds=20, sees_processes=True)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")


def run(script: str, *, limits: Limits = SHORT) -> Completed:
    """Run a shell script in a fresh workspace."""
    with workspace(tools=("gcc",)) as work:
        return work.run(["sh", "-c", script], limits=limits)


def inside(script: str, *, limits: Limits = SHORT) -> str:
    """Run a shell script in a fresh workspace and return its standard output."""
    return run(script, limits=limits).stdout.decode()
