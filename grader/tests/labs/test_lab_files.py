"""The files of a lab are read once for each state of them: what is stored is what is in them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from grader.assignment import rubric
from grader.labs import lab_files
from grader.labs.paged_kv.lab import FACETS, PREDICATES, lab

_FACETS = frozenset(facet.name for facet in FACETS) | {"reply"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files of a lab, of which nothing is stored yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cases"
    folder.mkdir()
    for path in lab().cases.glob("*.toml"):
        shutil.copy(path, folder)
    return folder


def read(folder: Path) -> Any:
    """Rubric, sentences and known mistakes of the folder."""
    grammar = lab().grammar
    return lab_files._read(folder, _FACETS, list(grammar.operations), list(PREDICATES), constants=grammar.constants)


def never(*_: object, **__: object) -> Any:
    """In the place of a reader."""
    raise AssertionError("read again")


def test_they_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab has what is in its files, each mistake with its predicate."""
    first = read(folder)
    monkeypatch.setattr(rubric, "load", never)
    rules, clauses, mistakes = read(folder)

    assert (rules, clauses, mistakes) == first
    assert (rules, clauses) == (lab().rubric, lab().grammar.clauses)
    assert [mistake.hint for mistake, _ in mistakes] == [mistake.hint for mistake in lab().mistakes]
    assert [bool(where) for _, where in mistakes] == [mistake.where is not None for mistake in lab().mistakes]
    assert any(where for _, where in mistakes)
