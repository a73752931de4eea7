"""Part 3: from the layers of a model to groups, blocks and tensors, and what a uniform allocator wastes."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

from reference.hybrid.kinds import ceil
from reference.oracle import Refused

Spec = tuple[str, int, int, int]  # kind, block size, window, bytes of a token
Layers = tuple[tuple[str, Spec], ...]


def unify_page_size(layers: Layers) -> Layers:
    """Enlarge blocks until all pages are as large as the largest. Refuses pages that do not divide the largest."""
    largest = max(_page_bytes(spec) for _, spec in layers)
    if any(largest % _page_bytes(spec) for _, spec in layers):
        raise Refused("NotImplementedError", "Part 3/unify_page_size")
    return tuple((name, (spec[0], spec[1] * (largest // _page_bytes(spec)), spec[2], spec[3])) for name, spec in layers)


def _page_bytes(spec: Spec) -> int:
    _, block_size, _, token_bytes = spec
    return block_size * token_bytes


def get_kv_cache_groups(layers: Layers) -> list[list[str]]:
    """Return the names of the layers of each group."""
    by_spec: dict[Spec, list[str]] = {}
    for name, spec in layers:
        by_spec.setdefault(spec, []).append(name)
    few, many = (choose(len(names) for names in by_spec.values()) for choose in (min, max))
    group_size = many if 2 * many < 3 * few else few
    groups = []
    for names in by_spec.values():
        count = ceil(len(names), group_size)
        groups += [names[first::count] for first in range(count)]
    return groups


def get_kv_cache_config(layers: Layers, available: int, num_gpu_blocks_override: int | None) -> dict[str, Any]:
    """Return groups, blocks and tensors for `available` bytes. Refuses what `unify_page_size` refuses."""
    unified = unify_page_size(layers)
    groups = get_kv_cache_groups(unified)
    specs = dict(unified)
    block_sizes = [specs[names[0]][1] for names in groups]
    page_bytes = _page_bytes(unified[0][1])
    width = max(map(len, groups))
    num_blocks = max(0, available // page_bytes // width)
    if num_gpu_blocks_override is not None:
        num_blocks = num_gpu_blocks_override
    return {
        "groups": groups,
        "block_sizes": block_sizes,
        "page_bytes": page_bytes,
        "num_blocks": num_blocks,
        "tensors": [[names[place] for names in groups if place < len(names)] for place in range(width)],
        "tensor_bytes": page_bytes * num_blocks,
        "padding_layers": width * len(groups) - len(layers),
        "alignment": lcm(*block_sizes),
    }


def uniform_waste(layers: tuple[tuple[str, int, int], ...], num_tokens: int, num_encoder_tokens: int) -> Fraction:
    """Return the wasted share if every token has a slot in every layer. Refuses kinds but full, sliding and cross."""
    allocated = needed = 0
    for kind, count, window in layers:
        keeps = {"full": num_tokens, "sliding": min(num_tokens, window), "cross": num_encoder_tokens}
        if kind not in keeps:
            raise Refused("ValueError", "Part 3/uniform_waste")
        allocated += count * (num_tokens + num_encoder_tokens)
        needed += count * keeps[kind]
    return 1 - Fraction(needed, allocated)
