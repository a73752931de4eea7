"""How the calls of the shelf are made, and what is read of a submission after each."""

from __future__ import annotations

from typing import Annotated, Any

import shelf as submission


class World:
    """What the caller has."""

    def __init__(self) -> None:
        self.shelf: Any = None
        self.boxes: list[Any] = []  # those of the start

    def place(self, box: Any) -> Any:
        return None if box is None else next((place for place, other in enumerate(self.boxes) if other is box), "?")


def _ids(world: World, boxes: Any) -> Any:
    return [world.place(box) for box in boxes] if isinstance(boxes, list | tuple) else world.place(boxes)


Count = Annotated[int, 0, 9]
Box = Annotated[Any, "boxes", 0, 9]
Ids = Annotated[Any, _ids]


def shelf(world: World, count: Count) -> None:
    world.shelf = submission.Shelf(count)
    world.boxes = world.shelf.boxes


def take(world: World, count: Count) -> Annotated[Ids, ValueError]:
    """Part 1."""
    return world.shelf.take(count)


def give(world: World, boxes: list[Box]) -> Annotated[Any, ValueError]:
    """Part 2."""
    return world.shelf.give(boxes)


def label(world: World, word: str, box: Box) -> Any:
    """Part 3."""
    return world.shelf.label(word, box)


def find(world: World, word: str) -> Annotated[Ids, None]:
    return world.shelf.find(word)


def usage(world: World) -> Any:
    return world.shelf.usage()


def read(world: World) -> dict[str, Any]:
    """Return what reads each part of the state."""
    return {
        "users": lambda: [box.users for box in world.boxes],
        "free": lambda: [world.place(box) for box in world.shelf.free],
        "names": lambda: {word: world.place(box) for word, box in world.shelf.names.items()},
    }
