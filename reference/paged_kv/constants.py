"""The handout's constants, by its own names. Their values are in one file, the header that students include."""

import re
from pathlib import Path

HEADER = Path(__file__).with_name("llm_memory.h")
CONSTANTS = {
    name: int(number)
    for name, number in re.findall(r"^#define (\w+) (\d+)\b", HEADER.read_text(encoding="utf-8"), re.MULTILINE)
}

BLOCK_SIZE = CONSTANTS["BLOCK_SIZE"]  # Part 2.1
KV_SIZE = CONSTANTS["KV_SIZE"]  # Part 2.1
KV_PER_BLOCK = CONSTANTS["KV_PER_BLOCK"]  # Part 2.1
L1_PT_SIZE = CONSTANTS["L1_PT_SIZE"]  # Part 2.2
L2_PT_SIZE = CONSTANTS["L2_PT_SIZE"]  # Part 2.2
MAX_LOGICAL_BLOCKS = CONSTANTS["MAX_LOGICAL_BLOCKS"]  # Part 2.2
assert KV_PER_BLOCK * KV_SIZE == BLOCK_SIZE, f"{HEADER}: BLOCK_SIZE must be KV_PER_BLOCK * KV_SIZE"
assert L1_PT_SIZE * L2_PT_SIZE == MAX_LOGICAL_BLOCKS, f"{HEADER}: MAX_LOGICAL_BLOCKS must be L1_PT_SIZE * L2_PT_SIZE"
