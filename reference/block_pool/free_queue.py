"""Task 1: the free queue, as the lists of its blocks that a walk forwards and a walk backwards visit.

A right program has one order. The engine holds both, because a program whose links disagree goes on from what it has.
"""

from __future__ import annotations

from typing import Any

from reference.oracle import Engine, Refused

Ids = tuple[int, ...]


class FreeQueue(Engine):
    """Blocks 0 to `num_blocks` - 1, of which some are in the queue."""

    def __init__(self) -> None:
        self.num_blocks = 0
        self.forward: list[int] = []  # from head to tail
        self.backward: list[int] = []  # from tail to head
        self.num_free = 0
        self.loose: list[int] = []  # blocks outside the queue with a link that is set: never, in a right program
        self.args = True  # whether the lists that were given are as before
        self.earlier: list[list[int]] = []  # queues that were made before

    def queue(self, num_blocks: int, blocks: Ids) -> None:
        """FreeKVCacheBlockQueue(blocks)."""
        earlier = [*self.earlier, list(self.forward)] if self.num_blocks else []
        self.restore({**type(self)().state(), "earlier": earlier})  # a new engine; those made before are left alone
        self.num_blocks = num_blocks
        self.append_n(blocks)
        self.because("Task 1/queue")

    def popleft(self) -> int:
        """Take the first block out."""
        if not self.forward:
            raise Refused("ValueError", "Task 1/popleft-empty")
        (block,) = self.popleft_n(1)
        self.because("Task 1/popleft")
        return block

    def popleft_n(self, n: int) -> list[int]:
        """Take the first `n` blocks out."""
        self.because("Task 1/popleft_n")
        if n > self.num_free:
            raise Refused("ValueError", "Task 1/popleft_n-too-many")
        taken = self.forward[:n]
        for block in taken:
            self.unlink(block)
        return taken

    def remove(self, block: int) -> None:
        """Take a block out, wherever it is."""
        if block not in self.forward:
            raise Refused("RuntimeError", "Task 1/remove-outside")
        self.because("Task 1/remove")
        self.unlink(block)

    def append(self, block: int) -> None:
        """Put a block at the tail."""
        self.append_n((block,))

    def append_n(self, blocks: Ids) -> None:
        """Put blocks at the tail, in order."""
        self.because("Task 1/append_n")
        if any(block in self.forward for block in blocks):
            raise Refused("RuntimeError", "Task 1/append-twice")
        for block in blocks:
            self.link(block)

    def get_all_free_blocks(self) -> list[int]:
        """The blocks from head to tail."""
        self.because("Task 1/get_all_free_blocks")
        return list(self.forward)

    def clear_lists(self) -> None:
        """The caller empties the lists that went in and out of the last call: they are the caller's."""
        self.because("Constraint 5/lists")

    def link(self, block: int) -> None:
        """Put a block at the tail."""
        self.forward.append(block)
        self.backward.insert(0, block)
        self.num_free += 1
        self.loose = [other for other in self.loose if other != block]

    def unlink(self, block: int) -> None:
        """Take a block out; both its links become None."""
        self.forward.remove(block)
        if block in self.backward:
            self.backward.remove(block)
        self.num_free -= 1

    def state(self) -> dict[str, Any]:
        """What a walk over the queue shows."""
        return {
            "num_blocks": self.num_blocks,
            "free": list(self.forward),
            "back": list(self.backward),
            "num_free": self.num_free,
            "loose": list(self.loose),
            "args": self.args,
            "earlier": [list(free) for free in self.earlier],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        self.num_blocks, self.num_free, self.args = state["num_blocks"], state["num_free"], state["args"]
        self.earlier = [list(free) for free in state["earlier"]]
        self.forward, self.backward, self.loose = (list(state[name]) for name in ("free", "back", "loose"))
