"""The lab of the ring: its table, in the order of the driver's codes."""

from __future__ import annotations

from pathlib import Path

from grader.assignment.lab import Lab
from grader.core.case import Number
from grader.core.rubric import Facet
from grader.labs.c_lab import HARNESS, c_lab, call, ints

OPERATIONS = {
    "ring_new": call(Number("capacity", -9, 99), refusals=("null",), task="Part 1"),
    "ring_put": call(ints("values"), refusals=("-1",), task="Part 2"),
    "ring_take": call(refusals=("-1",), task="Part 3"),
    "ring_free": call(refusals=("-1",), closes=True, task="Part 4"),
}
STATE = tuple(Facet(name, path=f"state.ring.{name}") for name in ("capacity", "count", "values"))
FACETS = (*STATE, Facet("reply", path="reply"), *HARNESS)
HERE = Path(__file__).parent


def lab() -> Lab:
    """Return the lab."""
    return c_lab(
        "ring",
        "A ring of ints",
        HERE,
        "ring",
        operations=OPERATIONS,
        facets=FACETS,
        oracle=f"{__package__}.engine:Ring",
        traces=f"{__package__}.traces",
        cases=HERE / "cases",
        smalls=f"{__package__}.small:SMALLS",
    )
