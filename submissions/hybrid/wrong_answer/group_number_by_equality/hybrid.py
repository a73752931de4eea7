"""Hybrid allocator in a functional manner: small frozen records, pure helpers, thin classes."""
from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from itertools import accumulate, chain, islice, takewhile
from math import gcd, lcm
from typing import Any, Callable, Iterator, Optional

up: Callable[[int, int], int] = lambda a, b: (a + b - 1) // b


# --------------------------------------------------------------------------- part 1

@dataclass(frozen=True)
class Kind:
    skipped: Callable[[int, int], int]               # (computed, window) -> tokens
    tail: Callable[[int, int, int], int]             # (blocks, window, size) -> needed at the end
    slots: Callable[[Any, int], int] = lambda request, total: total
    cacheable: bool = True


KINDS = {
    "full": Kind(lambda n, w: 0, lambda k, w, b: k),
    "sliding": Kind(lambda n, w: max(0, n - w + 1), lambda k, w, b: min(k, up(w - 1, b))),
    "mamba": Kind(lambda n, w: max(0, n - 1), lambda k, w, b: min(k, 1)),
    "cross": Kind(lambda n, w: 0, lambda k, w, b: k,
                  slots=lambda request, total: request.num_encoder_tokens, cacheable=False),
}


@dataclass(frozen=True)
class Group:
    number: int
    kind: Kind
    size: int
    window: int

    def needed(self, length: int) -> range:
        blocks = length // self.size
        return range(blocks - self.kind.tail(blocks, self.window, self.size), blocks)

    def leaving(self, computed: int, held: int) -> int:
        return min(self.kind.skipped(computed, self.window) // self.size, held)

    def lacking(self, request: Any, total: int, held: int) -> int:
        return max(0, up(self.kind.slots(request, total), self.size) - held)


def make_group(number: int, spec: tuple, caching: bool) -> Group:
    name, size, window = spec
    kind = KINDS.get(name)
    wrong = (kind is None
             or size < 1
             or (name == "sliding" and window < 2)
             or (caching and not kind.cacheable))
    if wrong:
        raise ValueError(f"bad group {number}: {spec}")
    return Group(number, kind, size, window)


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        self._pool = block_pool
        self._caching = enable_caching
        self._groups = tuple(make_group(groups.index(g), g, enable_caching) for g in groups)
        self._align = reduce(lcm, (g.size for g in self._groups), 1)
        self._held: dict[str, tuple[tuple, ...]] = {}     # tables are tuples of blocks

    @property
    def req_to_blocks(self):
        return {rid: [list(table) for table in tables] for rid, tables in self._held.items()}

    def get_computed_blocks(self, request):
        if not self._caching:
            return [[] for _ in self._groups], 0
        known = [
            {i: block for i, h in enumerate(request.block_hashes(g.size))
             if (block := self._pool.get_cached_block(h, g.number)) is not None}
            for g in self._groups
        ]
        lengths = range(self._align, request.num_tokens, self._align)
        accepted = ({n for n in lengths if all(i in found for i in g.needed(n))}
                    for g, found in zip(self._groups, known))
        best = max(reduce(set.intersection, accepted), default=0)
        null = self._pool.null_block
        hits = [[found[i] if i in g.needed(best) else null for i in range(best // g.size)]
                for g, found in zip(self._groups, known)]
        return hits, best

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None,
                       num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("at least one token")
        rid = request.request_id
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        hits = tuple(map(tuple, new_computed_blocks or ((),) * len(self._groups)))

        if rid in self._held:
            self._held[rid] = self._shrink(self._held[rid], computed)
        tables = self._held.get(rid, ((),) * len(self._groups))

        lacking = [g.lacking(request, total, len(table) + len(hit))
                   for g, table, hit in zip(self._groups, tables, hits)]
        in_queue = sum(not b.is_null and b.ref_cnt == 0 for b in chain(*hits))
        if sum(lacking) + in_queue > self._pool.num_free:
            return None

        self._pool.touch(list(chain(*hits)))
        fresh = iter(list(self._pool.get_new_blocks(sum(lacking))))
        new = [tuple(islice(fresh, n)) for n in lacking]
        self._held[rid] = tuple(h + t + n for h, t, n in zip(hits, tables, new))
        if self._caching:
            self._publish(request, total // self._align * self._align)
        return [list(blocks) for blocks in new]

    def _shrink(self, tables, computed):
        result = []
        for g, table in zip(self._groups, tables):
            n = g.leaving(computed, len(table))
            self._pool.free_blocks(list(reversed(table[:n])))
            result.append((self._pool.null_block,) * n + table[n:])
        return tuple(result)

    def _publish(self, request, length):
        for g, table in zip(self._groups, self._held[request.request_id]):
            count = length // g.size
            self._pool.cache_full_blocks(list(table[:count]),
                                         request.block_hashes(g.size)[:count], g.number)

    def free(self, request):
        tables = self._held.pop(request.request_id, ())
        self._pool.free_blocks([block for table in tables for block in reversed(table)])


# --------------------------------------------------------------------------- part 2

EMPTY, USED = "empty", "used"


def rank(state: tuple) -> tuple:
    return state[0], -state[1]


@dataclass(frozen=True)
class Page:
    number: int
    type: str
    owner: Optional[str]
    cells: tuple

    @property
    def base(self) -> int:
        return self.number * len(self.cells)

    def where(self, test: Callable[[Any], bool]) -> Iterator[int]:
        return (place for place, state in enumerate(self.cells) if test(state))

    def with_cell(self, place: int, state: Any) -> Page:
        return replace(self, cells=self.cells[:place] + (state,) + self.cells[place + 1:])

    @property
    def ranks(self) -> list:
        return [rank(s) for s in self.cells if isinstance(s, tuple)]

    @property
    def evictable(self) -> bool:
        return USED not in self.cells and bool(self.ranks)


def is_empty(state: Any) -> bool:
    return state == EMPTY


@dataclass
class LcmAllocator:
    page_bytes: dict
    budget: int
    _pages: dict = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        if not self.page_bytes or self.budget < 0 or any(b < 1 for b in self.page_bytes.values()):
            raise ValueError("bad arguments")
        self.page_bytes = dict(self.page_bytes)
        self.large_page_bytes = reduce(lcm, self.page_bytes.values())
        self.num_large_pages = self.budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // b for t, b in self.page_bytes.items()}
        self.free_large_pages = deque(range(self.num_large_pages))

    @property
    def owner(self):
        return {n: page.owner for n, page in self._pages.items()}

    @property
    def slots(self):
        view = defaultdict(dict, {t: {} for t in self.page_bytes})
        for page in self._pages.values():
            view[page.type].update(enumerate(page.cells, start=page.base))
        return view

    def _known(self, type_):
        if type_ not in self.page_bytes:
            raise ValueError(f"unknown type: {type_}")

    # the five steps; each gives (page, place) or None

    def _of_type(self, type_):
        return sorted((p for p in self._pages.values() if p.type == type_),
                      key=lambda p: p.number)

    def _first_empty(self, pages):
        return next(((p, place) for p in pages for place in p.where(is_empty)), None)

    def _blank(self, number, rid, type_):
        return Page(number, type_, rid, (EMPTY,) * self.ratio[type_]), 0

    def _step1(self, rid, type_):
        return self._first_empty(p for p in self._of_type(type_) if p.owner == rid)

    def _step2(self, rid, type_):
        if not self.free_large_pages:
            return None
        return self._blank(self.free_large_pages.popleft(), rid, type_)

    def _step3(self, rid, type_):
        victim = min(((max(p.ranks), p.number) for p in self._pages.values() if p.evictable),
                     default=None)
        return victim and self._blank(victim[1], rid, type_)

    def _step4(self, rid, type_):
        pages = self._of_type(type_)
        return self._first_empty(chain((p for p in pages if p.owner is None), pages))

    def _step5(self, rid, type_):
        oldest = min(((rank(p.cells[place]), p.number, place)
                      for p in self._of_type(type_)
                      for place in p.where(lambda s: isinstance(s, tuple))), default=None)
        return oldest and (self._pages[oldest[1]], oldest[2])

    def alloc(self, request_id, type_):
        self._known(type_)
        steps = (self._step1, self._step2, self._step3, self._step4, self._step5)
        found = next(filter(None, (step(request_id, type_) for step in steps)), None)
        if found is None:
            return None
        page, place = found
        page = page.with_cell(place, USED)
        self._pages[page.number] = page if page.owner is not None else replace(page, owner=request_id)
        return page.base + place

    def _change(self, type_, small_id, allowed, state):
        self._known(type_)
        number, place = divmod(small_id, self.ratio[type_])
        page = self._pages.get(number)
        if page is None or page.type != type_ or not allowed(page.cells[place]):
            raise ValueError(f"{type_} {small_id} is not in the right state")
        self._pages[number] = page.with_cell(place, state)
        return self._pages[number]

    def free(self, type_, small_id):
        page = self._change(type_, small_id, lambda s: s == USED, EMPTY)
        if set(page.cells) == {EMPTY}:
            del self._pages[page.number]
            self.free_large_pages.append(page.number)

    def release(self, type_, small_id, last_access, prefix_length):
        self._change(type_, small_id, lambda s: s == USED, (last_access, prefix_length))

    def reuse(self, type_, small_id):
        self._change(type_, small_id, lambda s: isinstance(s, tuple), USED)

    def remove_request(self, request_id):
        self._pages = {n: replace(p, owner=None) if p.owner == request_id else p
                       for n, p in self._pages.items()}

    def byte_offset(self, type_, small_id):
        self._known(type_)
        if not 0 <= small_id < self.num_large_pages * self.ratio[type_]:
            raise ValueError("no such page")
        return small_id * self.page_bytes[type_]


@dataclass(frozen=True)
class Demand:
    counts: dict
    sizes: dict

    @property
    def pages(self) -> int:
        return sum(self.counts.values())

    @property
    def bytes(self) -> int:
        return sum(n * self.sizes[t] for t, n in self.counts.items())


def fit(policy, budget, page_bytes, requests, weights=None):
    allocator = LcmAllocator(page_bytes, budget)
    if policy not in {"lcm", "max", "static", "gcd"}:
        raise ValueError(f"unknown policy: {policy}")
    demands = [Demand({t: r.get(t, 0) for t in page_bytes}, page_bytes) for r in requests]
    unit = gcd(*page_bytes.values())
    entries = (lambda d: d.bytes // unit) if policy == "gcd" else (lambda d: d.pages)

    def within(amount, limit):
        """For each demand: is the sum of all amounts up to here within the limit?"""
        return [used <= limit for used in accumulate(map(amount, demands))]

    if policy == "lcm":
        good = (all(allocator.alloc(f"#{i}", t) is not None
                    for t, n in d.counts.items() for _ in range(n))
                for i, d in enumerate(demands))
    elif policy == "max":
        good = within(lambda d: d.pages, budget // max(page_bytes.values()))
    elif policy == "gcd":
        good = within(lambda d: d.bytes // unit, budget // unit)
    else:
        parts = {t: budget * weights[t] // sum(weights.values()) // page_bytes[t]
                 for t in page_bytes}
        good = map(all, zip(*(within(lambda d, t=t: d.counts[t], parts[t]) for t in page_bytes)))

    inside = [d for d, ok in takewhile(lambda pair: pair[1], zip(demands, good))]
    return len(inside), sum(d.bytes for d in inside), sum(map(entries, inside))


# --------------------------------------------------------------------------- part 3

@dataclass(frozen=True)
class Spec:
    kind: str
    block_size: int
    window: Any
    token_bytes: int

    @property
    def page(self) -> int:
        return self.block_size * self.token_bytes

    def astuple(self) -> tuple:
        return self.kind, self.block_size, self.window, self.token_bytes


def unify_page_size(layers):
    specs = [Spec(*spec) for _, spec in layers]
    largest = max(s.page for s in specs)
    factors = [Fraction(largest, s.page) for s in specs]
    if any(f.denominator != 1 for f in factors):
        raise NotImplementedError("needs pages of different sizes")
    return [(name, replace(s, block_size=s.block_size * int(f)).astuple())
            for (name, _), s, f in zip(layers, specs, factors)]


def get_kv_cache_groups(layers):
    names = defaultdict(list)
    for name, spec in layers:
        names[Spec(*spec)].append(name)
    few, many = (pick(map(len, names.values())) for pick in (min, max))
    group_size = many if Fraction(many, few) < Fraction(3, 2) else few
    return [same[i::k] for same in names.values()
            for k in [up(len(same), group_size)] for i in range(k)]


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    unified = unify_page_size(layers)
    groups = get_kv_cache_groups(unified)
    spec_of = {name: Spec(*spec) for name, spec in unified}
    first = [spec_of[group[0]] for group in groups]
    width = max(map(len, groups))
    page = first[0].page
    blocks = (max(0, available // page // width) if num_gpu_blocks_override is None
              else num_gpu_blocks_override)
    return {
        "groups": groups,
        "block_sizes": [s.block_size for s in first],
        "page_bytes": page,
        "num_blocks": blocks,
        "tensors": [[name for group in groups for name in group[i:i + 1]] for i in range(width)],
        "tensor_bytes": page * blocks,
        "padding_layers": width * len(groups) - len(layers),
        "alignment": reduce(lcm, (s.block_size for s in first)),
    }


NEEDS = {
    "full": lambda tokens, encoder, window: tokens,
    "sliding": lambda tokens, encoder, window: min(tokens, window),
    "cross": lambda tokens, encoder, window: encoder,
}


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    if any(kind not in NEEDS for kind, _, _ in layers):
        raise ValueError("unknown kind of layer")
    needed = sum(count * NEEDS[kind](num_tokens, num_encoder_tokens, window)
                 for kind, count, window in layers)
    allocated = sum(count for _, count, _ in layers) * (num_tokens + num_encoder_tokens)
    return Fraction(allocated - needed, allocated)
