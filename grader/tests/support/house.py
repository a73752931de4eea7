"""Our own modules as the tests of the house see them: names, paths, parsed."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from grader.tests.support.command import ROOT

__all__ = ["ROOT", "here", "modules", "tree"]


@cache
def modules() -> dict[str, Path]:
    """Our modules by their names, tests apart."""
    paths = [path for package in ("reference", "grader") for path in sorted((ROOT / package).rglob("*.py"))]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in paths
        if "tests" not in path.relative_to(ROOT).parts
    }


@cache
def tree(path: Path) -> ast.Module:
    """A module, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"))


def here(path: Path, line: int) -> str:
    """An address to go to."""
    return f"{path.relative_to(ROOT)}:{line}"
