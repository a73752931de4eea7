"""Part 2, `fit`: how many requests are admitted by each of four policies to share the memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import gcd

from reference.hybrid.lcm_allocator import LcmAllocator
from reference.oracle import Refused

Sizes = tuple[tuple[str, int], ...]
Counts = dict[str, int]
POLICIES = ("lcm", "max", "static", "gcd")


def fit(
    policy: str, budget: int, page_bytes: Sizes, requests: tuple[Sizes, ...], weights: Sizes | None
) -> tuple[int, int, int]:
    """Return how many requests are admitted, the bytes of their pages, and the entries of their page tables.

    Raises `Refused` for an unknown policy, and if LcmAllocator refuses the sizes.
    """
    if policy not in POLICIES:
        raise Refused("ValueError", "Part 2/fit")
    LcmAllocator().lcm(page_bytes, budget)
    sizes = dict(page_bytes)
    unit = gcd(*sizes.values())
    has_room = _policy(policy, budget, page_bytes, dict(weights or ()))
    admitted = needed = entries = 0
    for request in requests:
        pages = {name: dict(request).get(name, 0) for name in sizes}
        if not has_room(pages):
            break
        own = sum(count * sizes[name] for name, count in pages.items())
        admitted += 1
        needed += own
        entries += own // unit if policy == "gcd" else sum(pages.values())
    return admitted, needed, entries


def _policy(policy: str, budget: int, page_bytes: Sizes, weights: Counts) -> Callable[[Counts], bool]:
    """Return the policy as a function that takes the pages of one more request, and returns whether they fit."""
    sizes = dict(page_bytes)
    if policy == "lcm":
        return _large_pages(budget, page_bytes)
    if policy == "static":
        shares = {name: budget * weights[name] // sum(weights.values()) for name in sizes}
        return _within({name: shares[name] // size for name, size in sizes.items()}, lambda pages: pages)
    if policy == "max":
        return _within({"": budget // max(sizes.values())}, lambda pages: {"": sum(pages.values())})
    unit = gcd(*sizes.values())
    return _within(
        {"": budget // unit}, lambda pages: {"": sum(count * sizes[name] // unit for name, count in pages.items())}
    )


def _within(left: Counts, cost: Callable[[Counts], Counts]) -> Callable[[Counts], bool]:
    """Return a policy that only counts: it subtracts the pages' `cost` from `left`, where nothing may get negative."""

    def has_room(pages: Counts) -> bool:
        for name, number in cost(pages).items():
            left[name] -= number
        return min(left.values()) >= 0

    return has_room


def _large_pages(budget: int, page_bytes: Sizes) -> Callable[[Counts], bool]:
    """Return the policy that allocates the pages in an LcmAllocator, with a new id for every request."""
    allocator = LcmAllocator()
    allocator.lcm(page_bytes, budget)
    ids = count()

    def has_room(pages: Counts) -> bool:
        request = f"request {next(ids)}"
        try:
            for name, number in pages.items():
                for _ in range(number):
                    allocator.alloc(request, name)
        except Refused:
            return False
        return True

    return has_room
