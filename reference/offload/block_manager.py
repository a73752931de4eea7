"""Part 1: blocks of CPU memory for sequences. The manager only counts blocks, and never touches a device."""

from __future__ import annotations

from reference.oracle import Refused

SeqId = str | int


class HybridKVCacheManager:
    """A queue of free blocks, and for each sequence its blocks, its length and its offloaded length P."""

    def __init__(self, num_cpu_blocks: int, block_size: int) -> None:
        if num_cpu_blocks < 1 or block_size < 1:
            raise Refused("ValueError", "Part 1/manager")
        self.block_size = block_size
        self.free_cpu_blocks = list(range(num_cpu_blocks))
        self.block_tables: dict[SeqId, list[int]] = {}
        self.lengths: dict[SeqId, int] = {}
        self.offloaded: dict[SeqId, int] = {}

    def allocate_cpu_only(self, seq_id: SeqId, num_tokens: int) -> list[int]:
        """Give a new sequence blocks for `num_tokens` tokens, and return them."""
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
        """Return whether there is room for one more token of the sequence."""
        self._check_known(seq_id)
        return not self._needs_block(seq_id) or len(self.free_cpu_blocks) > 0

    def may_append(self, seq_id: SeqId) -> int:
        """Let a sequence grow by a token. Return the block that it took, or -1 if it needed none."""
        if not self.can_append(seq_id):
            raise Refused("RuntimeError", "Part 1/append")
        block = -1
        if self._needs_block(seq_id):
            block = self.free_cpu_blocks.pop(0)
            self.block_tables[seq_id].append(block)
        self.lengths[seq_id] += 1
        return block

    def mark_offloaded(self, seq_id: SeqId, num_tokens: int) -> None:
        """Note that the first `num_tokens` tokens are in the CPU cache."""
        self._check_known(seq_id)
        if not self.offloaded[seq_id] <= num_tokens <= self.lengths[seq_id]:
            raise Refused("ValueError", "Part 1/mark")
        self.offloaded[seq_id] = num_tokens

    def deallocate(self, seq_id: SeqId) -> None:
        """Forget a sequence, and put its blocks into the queue, the last one first."""
        self._check_known(seq_id)
        self.free_cpu_blocks += reversed(self.block_tables.pop(seq_id))
        del self.lengths[seq_id], self.offloaded[seq_id]

    def get_all_cpu_blocks(self, seq_id: SeqId) -> list[int]:
        """Return the block table of a sequence."""
        self._check_known(seq_id)
        return list(self.block_tables[seq_id])

    def get_prefilled_cpu_blocks(self, seq_id: SeqId) -> list[int]:
        """Return the blocks that hold an offloaded token."""
        self._check_known(seq_id)
        return self.block_tables[seq_id][: -(-self.offloaded[seq_id] // self.block_size)]

    def get_prefill_len(self, seq_id: SeqId) -> int:
        """Return P, the number of offloaded tokens."""
        self._check_known(seq_id)
        return self.offloaded[seq_id]

    def get_decode_start_pos(self, seq_id: SeqId) -> int:
        """Return the row of the decode buffer for the first token that is not offloaded yet."""
        self._check_known(seq_id)
        return self.offloaded[seq_id] % self.block_size

    def _check_known(self, seq_id: SeqId) -> None:
        if seq_id not in self.block_tables:
            raise Refused("KeyError", "Part 1/unknown")

    def _needs_block(self, seq_id: SeqId) -> bool:
        return self.lengths[seq_id] % self.block_size == 0
