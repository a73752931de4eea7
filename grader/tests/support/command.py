"""The command line as its users start it, for the tests of its output and its exit code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FEW", "ROOT", "SAMPLES", "Said", "command", "copy_of_the_house", "environment", "grade", "tools"]

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "submissions" / "paged_kv"
FEW = ("--case", "append/copy_*")
"""Enough cases to tell a right program from a wrong one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def all(self) -> str:
        """Both streams."""
        return self.out + self.err


def command(*arguments: str | Path) -> list[str]:
    """Return `grade` with these arguments, as an argument list."""
    return [sys.executable, "-m", "grader", *map(str, arguments)]


def environment(root: Path = ROOT, **changes: str) -> dict[str, str]:
    """Return this process's variables without those that change the output, or configure the grader or Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not re.search("COLOR|COLUMNS|GITHUB_ACTIONS|GRADE|PYTHON", name)
    }
    return {**kept, "PYTHONPATH": str(root), **changes}


def grade(
    *arguments: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None, root: Path = ROOT
) -> Said:
    """Run `grade` to its end."""
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(root, **(variables or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    said = Said(code=done.returncode, out=done.stdout.decode(errors="replace"), err=done.stderr.decode())

    assert "Traceback" not in said.all
    return said


def tools(folder: Path, *names: str) -> str:
    """Return a PATH on which there are only these programs."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


def copy_of_the_house(folder: Path) -> Path:
    """Copy the code, all cases and a few submissions to a folder where tests can break them."""
    for name in ("grader", "reference", "cases"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "golden"))
    for name in ("accepted/yoda_crlf", "compile_error/sign_compare", "wrong_answer/all_null"):
        shutil.copytree(SAMPLES / name, folder / "submissions" / "paged_kv" / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder
