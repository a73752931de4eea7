"""A second model of Part 2, deliberately naive: the memory byte by byte, to be compared with the engine.

Each byte knows the type that it is cut for, what its slot holds, and whose it is. Pages, slots, ratios, and which of
them are empty or evictable are found by looking at bytes, from the first to the last, each time. Only the order in
which large pages became free is remembered. Written from the handout alone; it shares no code with `reference.hybrid`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Sizes = tuple[tuple[str, int], ...]
Held = str | tuple[int, int]


class Wrong(Exception):
    """What the handout answers with a `ValueError`."""


@dataclass
class Byte:
    """A byte of a large page that is in use."""

    cut_for: str
    held: Held
    owner: str | None


class ByteMemory:
    """The allocator, and `fit`; `apply` takes the operations of a case."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.large = 0
        self.memory: list[Byte | None] = []  # all bytes of large pages; None: the page is free
        self.queue: list[int] = []  # where free large pages start, the next one first

    def apply(self, name: str, arguments: tuple[Any, ...]) -> str:
        """Do one operation, and return the reply as a case has it."""
        try:
            value = getattr(self, name)(*arguments)
        except Wrong:
            return "ValueError"
        return json.dumps(value, separators=(",", ":"))

    def lcm(self, sizes: Sizes, budget: int) -> None:
        """A memory of so many bytes, of which only whole large pages are any use."""
        if not sizes or any(size < 1 for _, size in sizes) or budget < 0:
            raise Wrong
        self.sizes, self.large = dict(sizes), 1
        while any(self.large % size for size in self.sizes.values()):
            self.large += 1
        self.memory, self.queue = [], []
        while len(self.memory) + self.large <= budget:
            self.queue.append(len(self.memory))
            self.memory += [None] * self.large

    # Looking at bytes

    def _slots(self, page_type: str) -> Iterator[tuple[int, Byte]]:
        """Every slot of a type in order: its id, and its first byte, which all its other bytes are like."""
        size = self.sizes[page_type]
        for start in range(0, len(self.memory), size):
            bytes_ = self.memory[start : start + size]
            first = bytes_[0]
            if first is not None and first.cut_for == page_type:
                assert all(byte == first for byte in bytes_)
                yield start // size, first

    def _pages(self) -> Iterator[tuple[int, list[Byte]]]:
        """Every large page in use: where it starts, and its bytes."""
        for start in range(0, len(self.memory), self.large):
            bytes_ = [byte for byte in self.memory[start : start + self.large] if byte is not None]
            assert len(bytes_) in (0, self.large)
            if bytes_:
                yield start, bytes_

    def _write(self, page_type: str, small_id: int, held: Held) -> None:
        size = self.sizes[page_type]
        for byte in self.memory[small_id * size : (small_id + 1) * size]:
            assert byte is not None
            byte.held = held

    def _cut(self, start: int, page_type: str, owner: str) -> None:
        for place in range(start, start + self.large):
            self.memory[place] = Byte(page_type, "empty", owner)

    # The methods

    def alloc(self, request: str, page_type: str) -> int | None:
        """Five steps; the slot of the first one that finds one."""
        self._known(page_type)
        small_id = self._step_1(request, page_type)
        if small_id is None:
            small_id = self._steps_2_and_3(request, page_type)
        if small_id is None:
            small_id = self._steps_4_and_5(page_type)
        if small_id is None:
            return None
        self._write(page_type, small_id, "used")
        start = small_id * self.sizes[page_type] // self.large * self.large
        for byte in self.memory[start : start + self.large]:
            assert byte is not None
            byte.owner = request if byte.owner is None else byte.owner
        return small_id

    def _step_1(self, request: str, page_type: str) -> int | None:
        for small_id, byte in self._slots(page_type):
            if byte.held == "empty" and byte.owner == request:
                return small_id
        return None

    def _steps_2_and_3(self, request: str, page_type: str) -> int | None:
        start = self.queue.pop(0) if self.queue else self._oldest_page()
        if start is None:
            return None
        self._cut(start, page_type, request)
        return start // self.sizes[page_type]

    def _oldest_page(self) -> int | None:
        """The page with nothing used and something evictable whose youngest slot is the oldest."""
        best: tuple[int, int, int] | None = None
        for start, bytes_ in self._pages():
            if any(byte.held == "used" for byte in bytes_):
                continue
            ages = [(byte.held[0], -byte.held[1]) for byte in bytes_ if isinstance(byte.held, tuple)]
            if ages:
                key = (*max(ages), start)
                best = key if best is None or key < best else best
        return None if best is None else best[2]

    def _steps_4_and_5(self, page_type: str) -> int | None:
        empty = [(small_id, byte.owner) for small_id, byte in self._slots(page_type) if byte.held == "empty"]
        for small_id, owner in empty:
            if owner is None:
                return small_id
        if empty:
            return empty[0][0]
        cached = [
            (byte.held[0], -byte.held[1], small_id)
            for small_id, byte in self._slots(page_type)
            if isinstance(byte.held, tuple)
        ]
        return min(cached)[2] if cached else None

    def _known(self, page_type: str) -> None:
        if page_type not in self.sizes:
            raise Wrong

    def _held(self, page_type: str, small_id: int) -> Held | None:
        self._known(page_type)
        return {number: byte.held for number, byte in self._slots(page_type)}.get(small_id)

    def free_page(self, page_type: str, small_id: int) -> None:
        """A used slot is empty; a page that has only empty bytes is nobody's."""
        if self._held(page_type, small_id) != "used":
            raise Wrong
        self._write(page_type, small_id, "empty")
        for start, bytes_ in list(self._pages()):
            if all(byte.held == "empty" for byte in bytes_):
                self.memory[start : start + self.large] = [None] * self.large
                self.queue.append(start)

    def release(self, page_type: str, small_id: int, last_access: int, prefix_length: int) -> None:
        """A used slot only caches."""
        if self._held(page_type, small_id) != "used":
            raise Wrong
        self._write(page_type, small_id, (last_access, prefix_length))

    def reuse(self, page_type: str, small_id: int) -> None:
        """A slot that only caches is used."""
        if not isinstance(self._held(page_type, small_id), tuple):
            raise Wrong
        self._write(page_type, small_id, "used")

    def remove(self, request: str) -> None:
        """The bytes of a request are without owner."""
        for byte in self.memory:
            if byte is not None and byte.owner == request:
                byte.owner = None

    def offset(self, page_type: str, small_id: int) -> int:
        """The first byte of a slot that fits into the memory."""
        self._known(page_type)
        starts = range(0, len(self.memory), self.sizes[page_type])
        if not 0 <= small_id < len(starts):
            raise Wrong
        return starts[small_id]

    def fit(  # noqa: PLR0917 - as in a trace
        self, policy: str, budget: int, sizes: Sizes, requests: tuple[Sizes, ...], weights: Sizes | None
    ) -> list[int]:
        """Requests admitted, bytes of their pages, entries of their tables: page after page is laid into memory."""
        other = ByteMemory()
        other.lcm(sizes, budget)
        if policy not in ("lcm", "max", "static", "gcd"):
            raise Wrong
        left = _left(policy, budget, sizes, dict(weights or ()))
        unit = max(unit for unit in range(1, budget + 99) if not any(size % unit for _, size in sizes))
        admitted, needed, entries = 0, 0, 0
        for number, request in enumerate(requests):
            pages = [(name, size) for name, size in sizes for _ in range(dict(request).get(name, 0))]
            for name, size in pages:
                if policy == "lcm":
                    if other.alloc(f"{number}", name) is None:
                        return [admitted, needed, entries]
                    continue
                region = name if policy == "static" else ""
                takes = {"max": max(other.sizes.values()), "static": size, "gcd": size}[policy]
                left[region] -= takes
                if left[region] < 0:
                    return [admitted, needed, entries]
            admitted += 1
            needed += sum(size for _, size in pages)
            entries += sum(size // unit if policy == "gcd" else 1 for _, size in pages)
        return [admitted, needed, entries]

    def state(self) -> dict[str, Any]:
        """As the engine has it, without the sizes."""
        ratios = {name: len(range(0, self.large, size)) for name, size in self.sizes.items()}
        return {
            "geometry": [self.large, len(range(0, len(self.memory), self.large or 1)), ratios],
            "free_large_pages": [start // self.large for start in self.queue],
            "owner": {str(start // self.large): bytes_[0].owner for start, bytes_ in self._pages()},
            "slots": {
                name: {
                    str(small_id): byte.held if isinstance(byte.held, str) else list(byte.held)
                    for small_id, byte in self._slots(name)
                }
                for name in self.sizes
            },
        }


def _left(policy: str, budget: int, sizes: Sizes, weights: dict[str, int]) -> dict[str, int]:
    """The bytes of each region that a policy lays pages into."""
    if policy == "static":
        whole = sum(weights.values())
        return {name: budget * weights[name] // whole for name, _ in sizes}
    return {"": budget}
