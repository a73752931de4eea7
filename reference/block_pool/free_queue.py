"""Task 1: the free queue, as the list of its blocks from head to tail."""

from __future__ import annotations

from typing import Any

from reference.oracle import Engine, Refused

Ids = tuple[int, ...]


class FreeQueue(Engine):
    """The free queue, and the number of all blocks: the queue has some of blocks 0 to `num_blocks` - 1."""

    def __init__(self) -> None:
        self.num_blocks = 0
        self.forward: list[int] = []  # from head to tail
        self.num_free = 0

    def queue(self, num_blocks: int, blocks: Ids) -> None:
        """Do the handout's call `FreeKVCacheBlockQueue(blocks)`."""
        self.restore(type(self)().state())  # forgets the queue that was made before
        self.num_blocks = num_blocks
        self.append_n(blocks)
        self.because("Task 1/queue")

    def popleft(self) -> int:
        """Take the first block out of the queue, and return it."""
        if not self.forward:
            raise Refused("ValueError", "Task 1/popleft-empty")
        (block,) = self.popleft_n(1)
        self.because("Task 1/popleft")
        return block

    def popleft_n(self, n: int) -> list[int]:
        """Take the first `n` blocks out of the queue, and return them."""
        self.because("Task 1/popleft_n")
        if n > self.num_free:
            raise Refused("ValueError", "Task 1/popleft_n-too-many")
        taken = self.forward[:n]
        for block in taken:
            self.unlink(block)
        return taken

    def remove(self, block: int) -> None:
        """Take a block out of the queue, wherever it is."""
        if block not in self.forward:
            raise Refused("RuntimeError", "Task 1/remove-outside")
        self.because("Task 1/remove")
        self.unlink(block)

    def append(self, block: int) -> None:
        """Put a block at the tail."""
        self.append_n((block,))

    def append_n(self, blocks: Ids) -> None:
        """Put blocks at the tail, in order. Raises `Refused` if one is in the queue."""
        self.because("Task 1/append_n")
        if any(block in self.forward for block in blocks):
            raise Refused("RuntimeError", "Task 1/append-twice")
        for block in blocks:
            self.link(block)

    def get_all_free_blocks(self) -> list[int]:
        """Return the blocks from head to tail."""
        self.because("Task 1/get_all_free_blocks")
        return list(self.forward)

    def link(self, block: int) -> None:
        """Put a block at the tail, without a check."""
        self.forward.append(block)
        self.num_free += 1

    def unlink(self, block: int) -> None:
        """Take a block out of the queue, without a check."""
        self.forward.remove(block)
        self.num_free -= 1

    def state(self) -> dict[str, Any]:
        """Return the number of all blocks, and what a walk over the queue shows."""
        return {"num_blocks": self.num_blocks, "free": list(self.forward), "num_free": self.num_free}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        self.num_blocks, self.forward, self.num_free = state["num_blocks"], list(state["free"]), state["num_free"]
