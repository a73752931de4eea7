"""A lab whose submissions count, a class of them, and a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.classroom.store import Store, open_store
from grader.tests.support.counter_lab import COUNTERS, added_counter


@pytest.fixture
def counter() -> Iterator[None]:
    """The counter is a lab: most tests grade with it."""
    with added_counter():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A class of four, two of whom handed in the same."""
    made = tmp_path / "class"
    made.mkdir()
    for name, source in COUNTERS.items():
        (made / f"{name}.sh").write_text(source, encoding="utf-8")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty one, which does not matter to the folder."""
    with open_store(tmp_path / "grades.sqlite", create=True) as made:
        yield made
