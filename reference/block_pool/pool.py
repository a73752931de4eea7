"""Tasks 2, 3 and 6: the pool with its reference counts, the index of cached blocks, and copy-on-write."""

from __future__ import annotations

from typing import Any

from reference.block_pool.free_queue import FreeQueue, Ids
from reference.oracle import Refused

NULL_BLOCK = 0


class Pool(FreeQueue):
    """A pool of blocks, of which block 0 is the null block."""

    def __init__(self) -> None:
        super().__init__()
        self.caching = True
        self.null: list[int] = []
        self.ref: list[int | None] = []  # None: the null block's count means nothing
        self.hash: list[str | None] = []
        self.index: dict[str, list[int]] = {}  # each hash with its blocks, the first inserted first
        self.payload: list[list[int]] = []

    # Task 2: pool and reference counts

    def pool(self, num_blocks: int, caching: bool, block_size: int) -> None:
        """Do the handout's call `BlockPool(num_blocks, caching, block_size)`."""
        if num_blocks < 1:
            raise Refused("ValueError", "Task 2/num_blocks")
        self.queue(num_blocks, tuple(range(1, num_blocks)))
        self.because("Task 2/null_block")
        self.caching = caching
        self.null = [NULL_BLOCK]
        self.ref = [None] + [0] * (num_blocks - 1)
        self.hash = [None] * num_blocks
        self.payload = [[0] * block_size for _ in range(num_blocks)]

    def get_new_blocks(self, n: int) -> list[int]:
        """Take `n` blocks from the head of the queue. Raises `Refused` if there are fewer."""
        self.because("Task 2/get_new_blocks")
        if n > self.num_free:
            raise Refused("ValueError", "Task 2/get_new_blocks-too-many")
        taken = self.forward[:n]
        for block in taken:
            self.unlink(block)
            self._evict(block)
            self.ref[block] = 1
        return taken

    def touch(self, blocks: Ids) -> None:
        """Add a user to each block. A free block leaves the queue."""
        self.because("Task 2/touch")
        for block in blocks:
            if block == NULL_BLOCK:
                self.because("Task 2/touch-null")
            elif self.ref[block] == 0:
                self.because("Task 2/touch-free")
                self.unlink(block)
            self._add(block, 1)

    def free_blocks(self, blocks: Ids) -> None:
        """Remove a user from each block. Blocks without users become free, in this order."""
        self.because("Task 2/free_blocks")
        if any(self.ref[block] == 0 for block in blocks):
            raise Refused("ValueError", "Task 2/free_blocks-twice")
        for block in blocks:
            self._add(block, -1)
        for block in blocks:
            if self.ref[block] == 0:
                self.link(block)

    def free_iterator(self, blocks: Ids) -> None:
        """Do the handout's call `free_blocks` with an iterator, which can be read only once."""
        self.free_blocks(blocks)

    def get_num_free_blocks(self) -> int:
        """Return the number of blocks in the queue."""
        self.because("Task 2/get_num_free_blocks")
        return self.num_free

    def get_usage(self) -> float:
        """Return the share of blocks in use. The null block does not count."""
        self.because("Task 2/get_usage")
        usable = self.num_blocks - 1
        return round((usable - self.num_free) / usable, 9) if usable else 0.0

    # Task 3: the index

    def cache_full_blocks(self, blocks: Ids, hashes: tuple[str, ...]) -> None:
        """Give blocks their hashes and put them in the index."""
        self.because("Task 3/cache_full_blocks")
        for block, hash_ in zip(blocks, hashes, strict=True):
            if self.caching and block != NULL_BLOCK and self.hash[block] is None:
                self.hash[block] = hash_
                self.index.setdefault(hash_, []).append(block)
            else:
                self.because("Task 3/cache_full_blocks-skips")

    def get_cached_block(self, hash_: str) -> int:
        """Return the block with this hash that was inserted first."""
        self.because("Task 3/get_cached_block")
        if hash_ not in self.index:
            raise Refused("null", "Task 3/get_cached_block")
        return self.index[hash_][0]

    def maybe_evict(self, block: int) -> bool:
        """Do the handout's call `_maybe_evict(block)`."""
        self.because("Task 3/maybe_evict")
        return self._evict(block)

    def evict_blocks(self, block_ids: Ids) -> None:
        """Take these blocks out of the index, used or not."""
        self.because("Task 3/evict_blocks")
        if any(block not in range(self.num_blocks) for block in block_ids):
            raise Refused("ValueError", "Task 3/evict_blocks-unknown")
        for block in block_ids:
            self._evict(block)

    def reset_prefix_cache(self) -> bool:
        """Forget all hashes and return True; False if a block is in use."""
        if any(count for count in self.ref if count is not None):
            self.because("Task 3/reset-in-use")
            return False
        self.because("Task 3/reset")
        self.index = {}
        self.hash = [None] * self.num_blocks
        return True

    def _evict(self, block: int) -> bool:
        """Remove a block's hash and its entry in the index. Return whether it had a hash."""
        hash_ = self.hash[block]
        if hash_ is None or block not in self.index.get(hash_, ()):
            return False
        self.index[hash_].remove(block)
        if not self.index[hash_]:
            del self.index[hash_]
        self.hash[block] = None
        return True

    # Task 6: copy-on-write

    def fork_block(self, block: int) -> int:
        """Return a block to which one user of `block` may write: `block` itself, or a copy if it has more users."""
        if block == NULL_BLOCK or self.ref[block] == 0:
            raise Refused("ValueError", "Task 6/fork_block-unused")
        if self.ref[block] == 1:
            self.because("Task 6/fork_block-alone")
            self._evict(block)
            return block
        if self.num_free < 1:
            raise Refused("ValueError", "Task 6/fork_block-full")
        (copy,) = self.get_new_blocks(1)
        self.because("Task 6/fork_block-shared")
        self.payload[copy] = list(self.payload[block])
        self._add(block, -1)
        return copy

    def set_payload(self, block: int, values: Ids) -> None:
        """Write `values` into a block's payload list, as the caller does."""
        self.because("Constraint 4/payload")
        self.payload[block] = list(values)

    def _add(self, block: int, users: int) -> None:
        count = self.ref[block]
        if count is not None:
            self.ref[block] = count + users

    def state(self) -> dict[str, Any]:
        """Return what the attributes of the pool and its blocks show."""
        return {
            **super().state(),
            "caching": self.caching,
            "null": list(self.null),
            "ref": list(self.ref),
            "hash": list(self.hash),
            "index": {hash_: list(blocks) for hash_, blocks in self.index.items()},
            "payload": [list(values) for values in self.payload],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        super().restore(state)
        self.caching, self.null = state["caching"], list(state["null"])
        self.ref, self.hash = list(state["ref"]), list(state["hash"])
        self.index = {hash_: list(blocks) for hash_, blocks in state["index"].items()}
        self.payload = [list(values) for values in state["payload"]]
