"""The lab of the ring: its table."""

from __future__ import annotations

from pathlib import Path

from grader.assignment.lab import Lab
from grader.core.case import JsonValue, Number, Signature
from grader.core.rubric import Facet
from grader.labs.c_lab import c_lab, ints

_HERE = Path(__file__).parent
_STATUS = JsonValue("status", "a number")
OPERATIONS = {  # in the order of the driver's enum
    "ring_new": Signature(arguments=(Number("capacity", -9, 99),), returns=_STATUS, refusals=("null",), task="Part 1"),
    "ring_put": Signature(arguments=(ints("values"),), returns=_STATUS, refusals=("-1",), task="Part 2"),
    "ring_take": Signature(arguments=(), returns=_STATUS, refusals=("-1",), task="Part 3"),
    "ring_free": Signature(arguments=(), returns=_STATUS, refusals=("-1",), task="Part 4"),
}
FACETS = (
    *(Facet(name, path=f"state.ring.{name}") for name in ("capacity", "count")),
    Facet("values", path="state.ring.values", title="values, oldest first"),
    Facet("reply", path="reply"),
    *map(Facet, ("heap", "failing")),
)


def lab() -> Lab:
    """Return the lab."""
    return c_lab(
        "ring",
        "A ring of ints",
        folder=_HERE,
        header="ring",
        operations=OPERATIONS,
        facets=FACETS,
        oracle=f"{__package__}.engine:Ring",
        cases=_HERE / "cases",
    )
