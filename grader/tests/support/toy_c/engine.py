"""A ring of ints: the oldest value is taken first, and a ring that is full takes nothing."""

from __future__ import annotations

from random import Random
from typing import Any

from reference.operation import Operation
from reference.oracle import Engine, Refused


class Ring(Engine):
    """The reference. A ring that was never made is None."""

    ring: dict[str, Any] | None = None

    def ring_new(self, capacity: int) -> str:
        if capacity < 1:
            raise Refused("null", "Part 1/capacity")
        self.ring = {"capacity": capacity, "count": 0, "values": []}
        return "ring"

    def ring_put(self, values: tuple[int, ...]) -> int:
        if self.ring is None or self.ring["count"] + len(values) > self.ring["capacity"]:
            raise Refused("-1", "Part 2/room")
        self.ring["values"] += values
        self.ring["count"] += len(values)
        return 0

    def ring_take(self) -> int:
        if self.ring is None or self.ring["count"] == 0:
            raise Refused("-1", "Part 3/empty")
        self.ring["count"] -= 1
        value: int = self.ring["values"].pop(0)
        return value

    def ring_free(self) -> int:
        if self.ring is None:
            raise Refused("-1", "Part 4/null")
        self.ring = None
        return 0

    def state(self) -> dict[str, Any]:
        return {"ring": self.ring and {**self.ring, "values": list(self.ring["values"])}}

    def restore(self, state: dict[str, Any]) -> None:
        self.ring = state["ring"] and {**state["ring"], "values": list(state["ring"]["values"])}


def generate(random: Random, length: int) -> list[Operation]:
    """Put and take values of a ring of four, sometimes more than there is room for."""
    operations = [Operation(name="ring_new", arguments=(4,))]
    for number in range(1, length):
        values = tuple(range(number, number + random.randrange(4)))
        calls = (Operation(name="ring_put", arguments=(values,)), Operation(name="ring_take"))
        operations.append(random.choice(calls))
    return operations
