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

from grader.tests.support.in_process import run_in_process

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
        if not re.search("COLOR|COLUMNS|LINES|GITHUB_ACTIONS|GRADE|PYTHON", name)
    }
    return {**kept, "PYTHONPATH": str(root), **changes}


def grade(*arguments: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None) -> Said:
    """Run `grade` to its end, in this process: its arguments, output, files and exit code are those of a start."""
    words = [*map(str, arguments)]
    return _result(*run_in_process(words, cwd=cwd, variables=environment(ROOT, **(variables or {}))))


def grade_process(
    *arguments: str | Path, cwd: Path = ROOT, variables: Mapping[str, str] | None = None, root: Path = ROOT
) -> Said:
    """Start `grade` as a process and wait for its end; `root` is the house whose code that is.

    It costs about 0.2 s of CPU more than `grade`, as much as a small grading. It is for tests of a copied house, and of
    what only a process has: its start, a shell around it, signals, its end, modules that no other test has imported.
    """
    done = subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment(root, **(variables or {})),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return _result(done.returncode, done.stdout, done.stderr)


def _result(code: int, out: bytes, err: bytes) -> Said:
    result = Said(code=code, out=out.decode(errors="replace"), err=err.decode())

    assert "Traceback" not in result.all
    return result


def tools(folder: Path, *names: str) -> str:
    """Return a PATH on which there are only these programs."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


def copy_of_the_house(folder: Path) -> Path:
    """Copy the code without its tests, all cases and a few submissions to a folder where tests can break them."""
    for name in ("grader", "reference", "cases"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("tests"))
    for name in ("accepted/yoda_crlf", "compile_error/sign_compare", "wrong_answer/all_null"):
        shutil.copytree(SAMPLES / name, folder / "submissions" / "paged_kv" / name)
    shutil.copy(SAMPLES / "keeps.toml", folder / "submissions" / "paged_kv")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder
