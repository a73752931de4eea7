"""A shelf of boxes, each with a number of users. Those without users wait in a queue; words name boxes."""

from __future__ import annotations

from random import Random
from typing import Any

from reference.operation import Operation
from reference.oracle import Engine, Refused


class Shelf(Engine):
    """The reference."""

    def shelf(self, count: int) -> None:
        self.users, self.free, self.names = [0] * count, list(range(count)), dict[str, int]()

    def take(self, count: int) -> list[int]:
        if count > len(self.free):
            raise Refused("ValueError", "Part 1/enough")
        taken, self.free = self.free[:count], self.free[count:]
        self.users = [1 if box in taken else users for box, users in enumerate(self.users)]
        return taken

    def give(self, boxes: tuple[int, ...]) -> None:
        if any(self.users[box] == 0 for box in boxes):
            raise Refused("ValueError", "Part 2/double")
        self.users = [users - (box in boxes) for box, users in enumerate(self.users)]
        self.free += [box for box in boxes if self.users[box] == 0]

    def label(self, word: str, box: int) -> None:
        self.names[word] = box

    def find(self, word: str) -> int:
        if word not in self.names:
            raise Refused("null", "Part 3/unknown")
        return self.names[word]

    def usage(self) -> float:
        return sum(users > 0 for users in self.users) / len(self.users)

    def state(self) -> dict[str, Any]:
        return {"users": list(self.users), "free": list(self.free), "names": dict(self.names)}

    def restore(self, state: dict[str, Any]) -> None:
        self.users, self.free, self.names = list(state["users"]), list(state["free"]), dict(state["names"])


def generate(random: Random, length: int) -> list[Operation]:
    """Take and give back boxes of a shelf of four, sometimes more than there are."""
    operations = [Operation(name="shelf", arguments=(4,))]
    for _ in range(length - 1):
        boxes = tuple(random.sample(range(4), random.randrange(3)))
        calls = (Operation(name="take", arguments=(len(boxes),)), Operation(name="give", arguments=(boxes,)))
        operations.append(random.choice(calls))
    return operations
