"""Task 5: how many blocks there are, and what fits in them. Sizes are bytes."""

from __future__ import annotations

from reference.oracle import Refused


def page_size_bytes(block_size: int, num_kv_heads: int, head_size: int, itemsize: int) -> int:
    """The bytes of a block in one layer: keys and values."""
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total: int, utilization_percent: int, weights: int, peak_activation: int, other: int) -> int:
    """What is left of the share that may be used. Raises `Refused` for a percentage outside 1 to 100."""
    if utilization_percent not in range(1, 101):
        raise Refused("ValueError", "Task 5/percent")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available: tuple[int, ...], page_bytes: int, num_layers: int, override: int | None) -> int:
    """The blocks for which every worker has room, or the override. Raises `Refused` for no workers."""
    if not available:
        raise Refused("ValueError", "Task 5/no-workers")
    if override is not None:
        return override
    return min(max(memory // (page_bytes * num_layers), 0) for memory in available)


def check_enough_memory(available: int, max_model_len: int, block_size: int, page_bytes: int, num_layers: int) -> int:
    """The bytes of one request of `max_model_len` tokens. Raises `Refused` where they are more than there are."""
    needed = _blocks(max_model_len, block_size) * page_bytes * num_layers
    if available <= 0 or needed > available:
        raise Refused("ValueError", "Task 5/not-enough")
    return needed


def estimate_max_model_len(
    available: int, max_model_len: int, block_size: int, page_bytes: int, num_layers: int
) -> int:
    """The largest length whose whole blocks fit; 0 if not even one token does."""
    blocks = max(available // (page_bytes * num_layers), 0)
    return min(blocks * block_size, max_model_len)


def max_concurrency(num_blocks: int, max_model_len: int, block_size: int) -> float:
    """How many requests of `max_model_len` tokens the blocks hold."""
    return num_blocks / _blocks(max_model_len, block_size)


def _blocks(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)
