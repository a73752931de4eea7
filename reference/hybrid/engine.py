"""The engine: the manager (Part 1), the allocator (Part 2) and the functions of Parts 2 and 3 side by side."""

from __future__ import annotations

from typing import Any

from reference.hybrid.fit import Sizes, fit
from reference.hybrid.grouping import Layers, get_kv_cache_config, get_kv_cache_groups, uniform_waste, unify_page_size
from reference.hybrid.lcm_allocator import LcmAllocator
from reference.hybrid.manager import Manager
from reference.oracle import function


class Hybrid(Manager, LcmAllocator):
    """A manager and an allocator, which know nothing of each other."""

    def fit(
        self, policy: str, budget: int, page_bytes: Sizes, requests: tuple[Sizes, ...], weights: Sizes | None
    ) -> list[int]:
        """Return the result of `reference.hybrid.fit.fit` as a list."""
        self.because("Part 2/fit")
        return list(fit(policy, budget, page_bytes, requests, weights))

    def unify(self, layers: Layers) -> list[Any]:
        """Return the result of `unify_page_size` as lists."""
        self.because("Part 3/unify_page_size")
        return [[name, list(spec)] for name, spec in unify_page_size(layers)]

    group = function("Part 3/get_kv_cache_groups", get_kv_cache_groups)
    config = function("Part 3/get_kv_cache_config", get_kv_cache_config)

    def waste(self, layers: tuple[tuple[str, int, int], ...], num_tokens: int, num_encoder_tokens: int) -> str:
        """Return the result of `uniform_waste` as "numerator/denominator"."""
        self.because("Part 3/uniform_waste")
        share = uniform_waste(layers, num_tokens, num_encoder_tokens)
        return f"{share.numerator}/{share.denominator}"

    def state(self) -> dict[str, Any]:
        """Return the states of the manager and the allocator in one."""
        return {**Manager.state(self), **LcmAllocator.state(self)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        Manager.restore(self, state)
        LcmAllocator.restore(self, state)
