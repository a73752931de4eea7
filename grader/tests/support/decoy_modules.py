"""Modules beside a submission that no Python process of the grader may import."""

from __future__ import annotations

import sys
from pathlib import Path

_OURS = ("grader", "reference", "pip", "usercustomize", "sitecustomize")
_MARK = ".imported"


def put_modules_beside(folder: Path) -> None:
    """Write a module for each name of the standard library and in `_OURS`; each leaves a file there when imported."""
    for name in {*sys.stdlib_module_names, *_OURS}:
        (folder / f"{name}.py").write_text(f"open(__file__ + {_MARK!r}, 'w').close()\n", encoding="utf-8")


def imported_beside(folder: Path) -> list[str]:
    """Return the file names of the modules that were imported."""
    return sorted(path.name.removesuffix(_MARK) for path in folder.glob(f"*{_MARK}"))
