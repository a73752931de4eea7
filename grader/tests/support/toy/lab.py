"""The lab of the shelf: its table, and where its files are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import JsonValue, Number, Signature, Word
from grader.core.rubric import Facet
from grader.labs.python_lab import python_lab

COUNT, BOXES = Number("count", 0, 9), JsonValue("boxes", "a list of boxes")
BOX, WORD = Number("box", 0, 9), Word("word")
NOTHING, SHARE = JsonValue("nothing", "null"), JsonValue("share", "a fraction")
OPERATIONS = {
    "shelf": Signature(arguments=(COUNT,), returns=NOTHING),
    "take": Signature(arguments=(COUNT,), returns=BOXES, refusals=("ValueError",), task="Part 1"),
    "give": Signature(arguments=(BOXES,), returns=NOTHING, refusals=("ValueError",), task="Part 2"),
    "label": Signature(arguments=(WORD, BOX), returns=NOTHING, task="Part 3"),
    "find": Signature(arguments=(WORD,), returns=BOX, refusals=("null",), task="Part 3"),
    "usage": Signature(arguments=(), returns=SHARE, task="Part 3"),
}
SETUP = "from shelf import Shelf"
CALLS = {
    "shelf": "shelf = Shelf(count); all_boxes = shelf.boxes",
    "take": "shelf.take(count)",
    "give": "shelf.give(boxes)",
}
CALLS |= {"label": "shelf.label(word, box)", "find": "shelf.find(word)", "usage": "shelf.usage()"}
TAKES = {"boxes": "[all_boxes[{}]]", "box": "all_boxes[{}]"}
GIVES = {"take": "boxes", "find": "box"}
READS = {"users": "[one.users for one in all_boxes]", "free": "places_of(shelf.free, all_boxes)"}
READS |= {"names": "{word: place_of(one, all_boxes) for word, one in shelf.names.items()}"}
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
    return python_lab(globals(), "toy", "A shelf of boxes", ENGINE, cases=CASES, invariants=never)
