"""A ring of ints: the oldest value is taken first, and a ring that is full takes nothing."""

from __future__ import annotations

from typing import Any

from reference.oracle import Engine, Refused


class Ring(Engine):
    """The reference. `values` is None while there is no ring."""

    capacity = 0
    values: list[int] | None = None

    def ring_new(self, capacity: int) -> str:
        if capacity < 1:
            raise Refused("null", "Part 1/capacity")
        self.capacity, self.values = capacity, []
        return "ring"

    def ring_put(self, values: tuple[int, ...]) -> int:
        if self.values is None or len(self.values) + len(values) > self.capacity:
            raise Refused("-1", "Part 2/room")
        self.values += values
        return 0

    def ring_take(self) -> int:
        if not self.values:
            raise Refused("-1", "Part 3/empty")
        return self.values.pop(0)

    def ring_free(self) -> int:
        if self.values is None:
            raise Refused("-1", "Part 4/null")
        self.values = None
        return 0

    def state(self) -> dict[str, Any]:
        if self.values is None:
            return {"ring": None}
        return {"ring": {"capacity": self.capacity, "count": len(self.values), "values": list(self.values)}}

    def restore(self, state: dict[str, Any]) -> None:
        ring = state["ring"]
        self.capacity, self.values = (ring["capacity"], list(ring["values"])) if ring else (0, None)
