"""The engine with a mistake: modules of `reference.hybrid` of which a line reads otherwise, in memory."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

import reference.hybrid

Mistake = tuple[str, str, str]
"""A module, a text that is in it once, and what it has instead."""

_PACKAGE = "reference.hybrid"
_MODULES = ("kinds", "pool", "manager", "lcm_allocator")
"""Each one after those that it imports."""


def engine_module(monkeypatch: pytest.MonkeyPatch, name: str, mistake: Mistake) -> ModuleType:
    """The module of that name, executed anew together with the other ones, of which one has the mistake."""
    changed, right, wrong = mistake
    assert reference.hybrid.__file__ is not None
    folder = Path(reference.hybrid.__file__).parent
    for each in _MODULES:
        source = (folder / f"{each}.py").read_text(encoding="utf-8")
        if each == changed:
            assert source.count(right) == 1, right
            source = source.replace(right, wrong)
        module = ModuleType(f"{_PACKAGE}.{each}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source, f"{each}.py", "exec"), module.__dict__)
    return sys.modules[f"{_PACKAGE}.{name}"]
