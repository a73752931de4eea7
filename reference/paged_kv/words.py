"""The handout's constants, by its own names."""

from __future__ import annotations

__all__ = [
    "BLOCK_SIZE",
    "KV_PER_BLOCK",
    "KV_SIZE",
    "L1_PT_SIZE",
    "L2_PT_SIZE",
    "MAX_LOGICAL_BLOCKS",
    "REFUSALS",
]

BLOCK_SIZE = 64  # Part 2.1
KV_SIZE = 4  # Part 2.1
KV_PER_BLOCK = 16  # Part 2.1
L1_PT_SIZE = 16  # Part 2.2
L2_PT_SIZE = 16  # Part 2.2
MAX_LOGICAL_BLOCKS = 256  # Part 2.2
assert KV_PER_BLOCK * KV_SIZE == BLOCK_SIZE
assert L1_PT_SIZE * L2_PT_SIZE == MAX_LOGICAL_BLOCKS
REFUSALS = ("NULL", "-1")  # Tasks 1 to 5: what a call that must fail returns
