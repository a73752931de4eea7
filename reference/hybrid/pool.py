"""The block pool that the handout gives: one free queue for the layers of all kinds, and the index of cached blocks.

An int is a block's id; 0 is the null block. A misuse raises `ValueError`; a right manager never misuses the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

NULL_BLOCK = 0


class BlockPool:
    """Blocks 1 to `num_blocks` - 1, all of them free at first."""

    def __init__(self, num_blocks: int = 1) -> None:
        self.free_queue = list(range(1, num_blocks))  # head first
        self.ref: dict[int, int] = {}  # how many table entries use a block, for the blocks in use
        self.index: dict[str, list[int]] = {}  # blocks under "text/group", the one entered first in front

    @property
    def num_free(self) -> int:
        """The number of blocks in the free queue."""
        return len(self.free_queue)

    def get_new_blocks(self, n: int) -> list[int]:
        """Take `n` blocks from the head; each loses its hash. Raises `ValueError` when there are fewer."""
        if not 0 <= n <= self.num_free:
            raise ValueError(f"{n} of {self.num_free} blocks")
        blocks, self.free_queue = self.free_queue[:n], self.free_queue[n:]
        for block in blocks:
            self.forget(block)
            self.ref[block] = 1
        return blocks

    def touch(self, blocks: Sequence[int]) -> None:
        """Add a user to each block; a free block leaves the queue."""
        for block in blocks:
            if block != NULL_BLOCK:
                if block not in self.ref:
                    self.free_queue.remove(block)
                self.ref[block] = self.ref.get(block, 0) + 1

    def free_blocks(self, blocks: Sequence[int]) -> None:
        """Remove a user from each block; blocks without users go to the tail, in this order, and keep their hash.

        Raises `ValueError` when a block is freed more often than it is used.
        """
        used = [block for block in blocks if block != NULL_BLOCK]
        if any(used.count(block) > self.ref.get(block, 0) for block in used):
            raise ValueError("a block is freed more often than it is used")
        for block in used:
            self.ref[block] -= 1
            if self.ref[block] == 0:
                del self.ref[block]
                self.free_queue.append(block)

    def cache_full_blocks(self, blocks: Sequence[int], hashes: Sequence[str], group_id: int) -> None:
        """Enter each block that has no hash yet in the index, under its hash and group."""
        for block, hash_ in zip(blocks, hashes, strict=True):
            if block != NULL_BLOCK and not self.has_hash(block):
                self.index.setdefault(f"{hash_}/{group_id}", []).append(block)

    def get_cached_block(self, hash_: str, group_id: int) -> int | None:
        """Return the block that was entered first under this hash and group, or None."""
        return next(iter(self.index.get(f"{hash_}/{group_id}", ())), None)

    def has_hash(self, block: int) -> bool:
        """Whether a block is in the index."""
        return any(block in blocks for blocks in self.index.values())

    def forget(self, block: int) -> None:
        """Remove a block's hash and its entry in the index."""
        for key, blocks in list(self.index.items()):
            if block in blocks:
                blocks.remove(block)
                if not blocks:
                    del self.index[key]
