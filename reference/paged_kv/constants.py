"""The handout's constants, by its own names."""

BLOCK_SIZE = 64  # Part 2.1
KV_SIZE = 4  # Part 2.1
KV_PER_BLOCK = 16  # Part 2.1
L1_PT_SIZE = 16  # Part 2.2
L2_PT_SIZE = 16  # Part 2.2
MAX_LOGICAL_BLOCKS = 256  # Part 2.2
assert KV_PER_BLOCK * KV_SIZE == BLOCK_SIZE
assert L1_PT_SIZE * L2_PT_SIZE == MAX_LOGICAL_BLOCKS
