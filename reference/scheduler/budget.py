"""Task 5: how many blocks there are, and what fits in them. Sizes of memory are in bytes."""

from __future__ import annotations

from reference.oracle import Refused


def page_size_bytes(block_size: int, num_kv_heads: int, head_size: int, itemsize: int) -> int:
    """Return the bytes of a block's keys and values in one layer."""
    return 2 * block_size * num_kv_heads * head_size * itemsize


def available_kv_memory(total: int, utilization_percent: int, weights: int, peak_activation: int, other: int) -> int:
    """Return the bytes left for the cache. Raises `Refused` unless 1 % to 100 % of the memory may be used."""
    if utilization_percent not in range(1, 101):
        raise Refused("ValueError", "Task 5/percent")
    return total * utilization_percent // 100 - weights - peak_activation - other


def get_num_blocks(available: tuple[int, ...], page_bytes: int, num_layers: int, override: int | None) -> int:
    """Return `override`, or how many blocks fit in the smallest worker's memory. Raises `Refused` without workers."""
    if not available:
        raise Refused("ValueError", "Task 5/no-workers")
    if override is not None:
        return override
    return min(max(memory // (page_bytes * num_layers), 0) for memory in available)


def check_enough_memory(available: int, max_model_len: int, block_size: int, page_bytes: int, num_layers: int) -> int:
    """Return the bytes of one request of `max_model_len` tokens. Raises `Refused` if fewer bytes are available."""
    needed = _blocks(max_model_len, block_size) * page_bytes * num_layers
    if available <= 0 or needed > available:
        raise Refused("ValueError", "Task 5/not-enough")
    return needed


def estimate_max_model_len(
    available: int, max_model_len: int, block_size: int, page_bytes: int, num_layers: int
) -> int:
    """Return the largest length up to `max_model_len` whose blocks fit; 0 if no block fits."""
    blocks = max(available // (page_bytes * num_layers), 0)
    return min(blocks * block_size, max_model_len)


def max_concurrency(num_blocks: int, max_model_len: int, block_size: int) -> float:
    """Return how many requests of `max_model_len` tokens the blocks hold."""
    return num_blocks / _blocks(max_model_len, block_size)


def _blocks(tokens: int, block_size: int) -> int:
    return -(-tokens // block_size)
