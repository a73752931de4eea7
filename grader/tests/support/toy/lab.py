"""The lab of the shelf: what its driver reads, by name, and what can never be so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.rubric import Facet
from grader.labs.python_lab import python_lab

STATE = (Facet("users", per="box"), Facet("free", title="free boxes, first to last"), Facet("names", per="word"))
FACETS = (*STATE, Facet("reply", path="reply", tolerance=1e-9))
HERE = Path(__file__).parent
ENGINE, CASES = f"{__package__}.engine:Shelf", HERE / "cases"


def never(state: dict[str, Any]) -> Iterator[str]:
    """What can never be, whatever was called."""
    for box in filter(state["users"].__getitem__, state["free"]):
        yield f"box {box} is in the queue of free boxes although it has {state['users'][box]} users"


def lab() -> Lab:
    """Return the lab."""
    return python_lab(HERE, "A shelf of boxes", ENGINE, FACETS, cases=CASES, invariants=never)
