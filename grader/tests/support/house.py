"""The modules of this repository for the tests that check the code itself: names, paths, syntax trees."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from grader.tests.support.command import ROOT


@cache
def modules() -> dict[str, Path]:
    """Return the paths of all modules except tests and what runs elsewhere (see `elsewhere`), by module name."""
    paths = [path for package in ("reference", "grader") for path in sorted((ROOT / package).rglob("*.py"))]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in paths
        if "tests" not in path.relative_to(ROOT).parts and path not in elsewhere()
    }


@cache
def elsewhere() -> frozenset[Path]:
    """The files that run beside a student's code, or are the student's own. The grader imports only given modules."""
    labs = ROOT / "grader" / "labs"
    files = [
        *(ROOT / "grader" / "runtime" / "python" / "harness").glob("*.py"),
        *labs.glob("*/starter/*.py"),
        *labs.glob("*/starter.py"),
        *labs.glob("*/driver.py"),
    ]
    return frozenset([*files, *labs.glob("*/given/*.py")])


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def here(path: Path, line: int) -> str:
    """Return a location as `path:line`, relative to the repository."""
    return f"{path.relative_to(ROOT)}:{line}"
