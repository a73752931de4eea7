"""The hybrid memory allocator, after its handout.

Part 1 is in `manager`, Part 2 in `lcm_allocator` and `fit`, Part 3 in `grouping`. `kinds` says what each kind of layer
needs, and `pool` is the block pool that students are given.
"""

from reference.hybrid.engine import Hybrid

__all__ = ["Hybrid"]
