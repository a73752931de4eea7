"""A right queue for the rest of a submission whose own queue is not, so that one missing helper does not cost all.

It is sent as text to the process that plays a case again (`grader.judge.resume`), and is in no copy for students.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Block = Any
"""A block of the submission, or a fake one."""


class FakeBlock:
    """A fake block."""

    def __init__(self) -> None:
        self.prev_free: Block = None
        self.next_free: Block = None


class FreeKVCacheBlockQueue:
    """Free blocks, linked in both directions between two fake ones."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.fake_free_list_head, self.fake_free_list_tail = head, tail = FakeBlock(), FakeBlock()
        head.next_free, tail.prev_free = tail, head
        self.num_free_blocks = 0
        self.append_n(blocks)

    def popleft(self) -> Block:
        """Take the first block."""
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[Block]:
        """Take the first n blocks."""
        blocks = self.get_all_free_blocks()[:n]
        if len(blocks) < n:
            raise ValueError("too few blocks are free")
        for block in blocks:
            self.remove(block)
        return blocks

    def remove(self, block: Block) -> None:
        """Take a block out of any place."""
        if block.next_free is None:
            raise RuntimeError("the block is not in the queue")
        block.prev_free.next_free, block.next_free.prev_free = block.next_free, block.prev_free
        block.prev_free = block.next_free = None
        self.num_free_blocks -= 1

    def append(self, block: Block) -> None:
        """Put a block at the tail."""
        self.append_n([block])

    def append_n(self, blocks: Iterable[Block]) -> None:
        """Put blocks at the tail."""
        blocks = list(blocks)
        if any(block.next_free is not None for block in blocks):
            raise RuntimeError("the block is in the queue")
        for block in blocks:
            last, tail = self.fake_free_list_tail.prev_free, self.fake_free_list_tail
            last.next_free = tail.prev_free = block
            block.prev_free, block.next_free = last, tail
            self.num_free_blocks += 1

    def get_all_free_blocks(self) -> list[Block]:
        """The blocks, the first one first."""
        blocks, block = [], self.fake_free_list_head.next_free
        while block is not self.fake_free_list_tail:
            blocks.append(block)
            block = block.next_free
        return blocks
