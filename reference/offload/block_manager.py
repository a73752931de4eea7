"""Part 1: blocks of CPU memory for sequences. It counts, and never touches a device."""

from __future__ import annotations

from reference.oracle import Refused

SeqId = str | int


class HybridKVCacheManager:
    """Free blocks in a queue, and for each sequence its blocks, its length and its offloaded length P."""

    def __init__(self, num_cpu_blocks: int, block_size: int) -> None:
        if num_cpu_blocks < 1 or block_size < 1:
            raise Refused("ValueError", "Part 1/manager")
        self.block_size = block_size
        self.free_cpu_blocks = list(range(num_cpu_blocks))
        self.block_tables: dict[SeqId, list[int]] = {}
        self.lengths: dict[SeqId, int] = {}
        self.offloaded: dict[SeqId, int] = {}

    def allocate_cpu_only(self, seq_id: SeqId, num_tokens: int) -> list[int]:
        """Give a new sequence its blocks."""
        if num_tokens < 1:
            raise Refused("ValueError", "Part 1/allocate-refused")
        if seq_id in self.block_tables:
            raise Refused("ValueError", "Part 1/allocate-refused")
        needed = -(-num_tokens // self.block_size)
        if needed > len(self.free_cpu_blocks):
            raise Refused("RuntimeError", "Part 1/allocate-refused")
        self.block_tables[seq_id] = [self.free_cpu_blocks.pop(0) for _ in range(needed)]
        self.lengths[seq_id] = num_tokens
        self.offloaded[seq_id] = 0
        return list(self.block_tables[seq_id])

    def can_append(self, seq_id: SeqId) -> bool:
        """Is there room for one more token?"""
        self._check_known(seq_id)
        return not self._needs_block(seq_id) or len(self.free_cpu_blocks) > 0

    def may_append(self, seq_id: SeqId) -> int:
        """Let a sequence grow by a token. Return the block that it took, -1 for none."""
        self._check_known(seq_id)
        if not self.can_append(seq_id):
            raise Refused("RuntimeError", "Part 1/append")
        block = -1
        if self._needs_block(seq_id):
            block = self.free_cpu_blocks.pop(0)
            self.block_tables[seq_id].append(block)
        self.lengths[seq_id] += 1
        return block

    def mark_offloaded(self, seq_id: SeqId, num_tokens: int) -> None:
        """Say that so many tokens are in the CPU cache."""
        self._check_known(seq_id)
        if not self.offloaded[seq_id] <= num_tokens <= self.lengths[seq_id]:
            raise Refused("ValueError", "Part 1/mark")
        self.offloaded[seq_id] = num_tokens

    def deallocate(self, seq_id: SeqId) -> None:
        """Take the blocks back, the last one first."""
        self._check_known(seq_id)
        self.free_cpu_blocks += reversed(self.block_tables.pop(seq_id))
        del self.lengths[seq_id], self.offloaded[seq_id]

    def get_all_cpu_blocks(self, seq_id: SeqId) -> list[int]:
        """The table."""
        self._check_known(seq_id)
        return list(self.block_tables[seq_id])

    def get_prefilled_cpu_blocks(self, seq_id: SeqId) -> list[int]:
        """The blocks that hold an offloaded token."""
        self._check_known(seq_id)
        return self.block_tables[seq_id][: -(-self.offloaded[seq_id] // self.block_size)]

    def get_prefill_len(self, seq_id: SeqId) -> int:
        """P."""
        self._check_known(seq_id)
        return self.offloaded[seq_id]

    def get_decode_start_pos(self, seq_id: SeqId) -> int:
        """The row of the decode buffer that holds the first token not yet offloaded."""
        self._check_known(seq_id)
        return self.offloaded[seq_id] % self.block_size

    def _check_known(self, seq_id: SeqId) -> None:
        if seq_id not in self.block_tables:
            raise Refused("KeyError", "Part 1/unknown")

    def _needs_block(self, seq_id: SeqId) -> bool:
        return self.lengths[seq_id] % self.block_size == 0
