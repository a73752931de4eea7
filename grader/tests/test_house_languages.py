"""The rooms that all languages share contain nothing that only one runtime uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from grader.tests.support.command import ROOT
from grader.tests.support.house import modules, tree

_NATIVE, _PYTHON, _SHARED = "native", "python", "shared"


def rooms() -> Iterator[tuple[str, Path]]:
    """The modules of the judge, and those that stand directly in the runtime's folder."""
    for module, path in modules().items():
        if module.startswith("grader.judge.") or path.parent == ROOT / "grader" / "runtime":
            yield module, path


def side(module: str) -> str:
    """The runtime that a module belongs to; the folder of a lab belongs to that of its submissions."""
    for language in (_NATIVE, _PYTHON):
        if f"{module}.".startswith(f"grader.runtime.{language}."):
            return language
    lab = re.match(r"grader\.labs\.(\w+)\.", module)
    if lab is None or (ROOT / "grader" / "labs" / f"{lab[1]}.py").exists():
        return _PYTHON if module == "grader.labs.python_lab" else _SHARED
    own = [path for name, path in modules().items() if name.startswith(f"grader.labs.{lab[1]}.")]
    native = any("grader.runtime.native" in path.read_text(encoding="utf-8") for path in own)
    return _NATIVE if native else _PYTHON


def defined(path: Path) -> set[str]:
    """The names that a module gives to others."""
    names = {node.name for node in tree(path).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def users() -> dict[tuple[str, str], set[str]]:
    """By module and name: the sides that import the name; the module itself where it uses it."""
    found: dict[tuple[str, str], set[str]] = {}
    for module, path in modules().items():
        if module.startswith("grader.bench."):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found.setdefault((str(node.module), alias.name), set()).add(side(module))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.setdefault((module, node.id), set()).add(_SHARED)
    return found


def test_nothing_in_shared_rooms_is_used_by_one_runtime_only() -> None:
    """What only one uses stands with it; what nobody uses, nowhere."""
    importers = users()
    found = {
        f"{module}.{name}": sorted(importers.get((module, name), ()))
        for module, path in rooms()
        for name in defined(path)
        if importers.get((module, name), set()) <= {_NATIVE} or importers.get((module, name), set()) <= {_PYTHON}
    }

    assert found == {}
