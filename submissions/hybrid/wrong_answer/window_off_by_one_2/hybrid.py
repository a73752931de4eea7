"""Hybrid KV cache: strategies, large pages, groups."""

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import astuple, dataclass
from fractions import Fraction
from itertools import islice

@dataclass(frozen=True)
class Strategy(ABC):
    """What a kind of layer wants. One object for each group."""

    group_id: int
    block_size: int
    window: int

    def check(self, caching: bool) -> None:
        pass

    def slots(self, request, total: int) -> int:
        return total

    def skipped(self, n: int) -> int:
        return 0

    @abstractmethod
    def tail(self, count: int) -> int:
        """Of a hit of `count` blocks, how many at its end are needed."""

    def lookup(self, pool, hashes: list, count: int):
        start = max(0, count - self.tail(count))
        row = [pool.null_block] * start
        row += [pool.get_cached_block(hashes[i], self.group_id) for i in range(start, count)]
        return None if None in row else row

    def release(self, table: deque, computed: int, null) -> list:
        """Skipped positions become null. Returns the blocks that were there, last one first."""
        gone = []
        for position in reversed(range(min(self.skipped(computed) // self.block_size, len(table)))):
            gone.append(table[position])
            table[position] = null
        return gone

class Full(Strategy):
    def tail(self, count):
        return count

class Sliding(Strategy):
    def check(self, caching):
        if self.window < 2:
            raise ValueError("a window of less than 2 tokens")

    def skipped(self, n):
        return max(0, n - self.window)

    def tail(self, count):
        return math.ceil(self.window / self.block_size)

class Mamba(Strategy):
    def skipped(self, n):
        return max(0, n - 1)

    def tail(self, count):
        return 1

class Cross(Full):
    def check(self, caching):
        if caching:
            raise ValueError("there is no caching with cross attention")

    def slots(self, request, total):
        return request.num_encoder_tokens

STRATEGIES = {"full": Full, "sliding": Sliding, "mamba": Mamba, "cross": Cross}

class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        strategies = []
        for group_id, (kind, block_size, window) in enumerate(groups):
            if kind not in STRATEGIES or block_size < 1:
                raise ValueError(f"group {kind}, {block_size}?")
            strategies.append(STRATEGIES[kind](group_id, block_size, window))
            strategies[-1].check(enable_caching)
        self._pool = block_pool
        self._strategies = strategies
        self._caching = enable_caching
        self._alignment = math.lcm(*[s.block_size for s in strategies])
        self._tables: dict[str, list[deque]] = {}

    @property
    def req_to_blocks(self):
        return {name: list(tables) for name, tables in self._tables.items()}

    def get_computed_blocks(self, request):
        nothing = [[] for _ in self._strategies], 0
        if not self._caching:
            return nothing
        hashes = {s.block_size: request.block_hashes(s.block_size) for s in self._strategies}
        steps = max(0, request.num_tokens - 1) // self._alignment
        for length in (step * self._alignment for step in range(steps, 0, -1)):
            rows = [s.lookup(self._pool, hashes[s.block_size], length // s.block_size) for s in self._strategies]
            if None not in rows:
                return rows, length
        return nothing

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError(f"{num_new_tokens} new tokens")
        pool = self._pool
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        tables = self._tables.get(request.request_id, [deque() for _ in self._strategies])
        hits = [list(row) for row in new_computed_blocks or [()] * len(tables)]

        for strategy, table in zip(self._strategies, tables):
            pool.free_blocks(strategy.release(table, computed, pool.null_block))
        wants = []
        for strategy, table, row in zip(self._strategies, tables, hits):
            blocks = -(-strategy.slots(request, total) // strategy.block_size)
            wants.append(max(0, blocks - len(table) - len(row)))
        from_queue = sum(block.ref_cnt == 0 for row in hits for block in row if not block.is_null)
        if from_queue + sum(wants) > pool.num_free:
            return None

        for table, row in zip(tables, hits):
            pool.touch(row)
            table.extend(row)
        result = []
        for table, want in zip(tables, wants):
            result.append(deque(pool.get_new_blocks(want)))
            table.extend(result[-1])
        self._tables[request.request_id] = tables

        if self._caching:
            end = total - total % self._alignment
            for strategy, table in zip(self._strategies, tables):
                count = end // strategy.block_size
                hashes = request.block_hashes(strategy.block_size)
                pool.cache_full_blocks(list(islice(table, count)), hashes[:count], strategy.group_id)
        return result

    def free(self, request):
        for table in self._tables.pop(request.request_id, ()):
            self._pool.free_blocks(list(reversed(table)))

EMPTY, USED = "empty", "used"

@dataclass
class LargePage:
    number: int
    kind: str
    owner: str | None
    states: list

    def first_empty(self):
        return self.states.index(EMPTY) if EMPTY in self.states else None

    def key(self):
        if USED in self.states:
            return None
        return max(((s[0], -s[1]) for s in self.states if s != EMPTY), default=None)

class LcmAllocator:
    def __init__(self, page_bytes, budget):
        if not page_bytes or budget < 0 or min(page_bytes.values()) < 1:
            raise ValueError(f"{page_bytes} and {budget} bytes")
        self._page_bytes = dict(page_bytes)
        self.large_page_bytes = math.lcm(*page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {kind: self.large_page_bytes // size for kind, size in page_bytes.items()}
        self.free_large_pages = deque(range(self.num_large_pages))
        self._pages: dict[int, LargePage] = {}

    @property
    def owner(self):
        return {number: page.owner for number, page in self._pages.items()}

    @property
    def slots(self):
        view = {kind: {} for kind in self._page_bytes}
        for page in self._pages.values():
            base = page.number * self.ratio[page.kind]
            view[page.kind].update({base + place: state for place, state in enumerate(page.states)})
        return view

    def _known(self, kind):
        if kind not in self._page_bytes:
            raise ValueError(f"type {kind}?")

    def _pages_of(self, kind):
        return sorted((p for p in self._pages.values() if p.kind == kind), key=lambda p: p.number)

    def _new_page(self, number, kind, request_id):
        self._pages[number] = LargePage(number, kind, request_id, [EMPTY] * self.ratio[kind])
        return self._pages[number], 0

    def _choose(self, request_id, kind):
        pages = self._pages_of(kind)
        holes = [page for page in pages if page.first_empty() is not None]
        for page in holes:
            if page.owner == request_id:
                return page, page.first_empty()
        if self.free_large_pages:
            return self._new_page(self.free_large_pages.popleft(), kind, request_id)
        victims = [(page.key(), number) for number, page in self._pages.items() if page.key() is not None]
        if victims:
            return self._new_page(min(victims)[1], kind, request_id)
        for page in sorted(holes, key=lambda p: p.owner is not None):
            return page, page.first_empty()
        oldest = None
        for page in pages:
            for place, state in enumerate(page.states):
                if state != USED and (oldest is None or (state[0], -state[1]) < oldest[0]):
                    oldest = (state[0], -state[1]), page, place
        return oldest and oldest[1:]

    def alloc(self, request_id, kind):
        self._known(kind)
        choice = self._choose(request_id, kind)
        if choice is None:
            return None
        page, place = choice
        page.states[place] = USED
        if page.owner is None:
            page.owner = request_id
        return page.number * self.ratio[kind] + place

    def _locate(self, kind, slot, used=True):
        self._known(kind)
        number, place = divmod(slot, self.ratio[kind])
        page = self._pages.get(number)
        if page is None or page.kind != kind:
            raise ValueError(f"there is no slot {slot} of {kind}")
        if page.states[place] == EMPTY or (page.states[place] == USED) != used:
            raise ValueError(f"slot {slot} of {kind} is {page.states[place]}")
        return page, place

    def free(self, kind, slot):
        page, place = self._locate(kind, slot)
        page.states[place] = EMPTY
        if page.states.count(EMPTY) == len(page.states):
            del self._pages[page.number]
            self.free_large_pages.append(page.number)

    def release(self, kind, slot, last_access, prefix_length):
        page, place = self._locate(kind, slot)
        page.states[place] = (last_access, prefix_length)

    def reuse(self, kind, slot):
        page, place = self._locate(kind, slot, used=False)
        page.states[place] = USED

    def remove_request(self, request_id):
        for page in self._pages.values():
            if page.owner == request_id:
                page.owner = None

    def byte_offset(self, kind, slot):
        self._known(kind)
        if slot < 0 or slot >= self.num_large_pages * self.ratio[kind]:
            raise ValueError(f"slot {slot} of {kind} is outside")
        return slot * self._page_bytes[kind]

@dataclass
class Policy:
    """Rooms of a memory, and two functions: what a request takes of each room, and its entries."""

    rooms: dict
    takes: object
    entries: object

    def admit(self, request):
        for room, count in self.takes(request).items():
            self.rooms[room] -= count
        return min(self.rooms.values()) >= 0

@dataclass
class LcmPolicy:
    allocator: LcmAllocator
    entries: object
    count: int = 0

    def admit(self, request):
        self.count += 1
        order = [kind for kind in self.allocator.ratio for _ in range(request.get(kind, 0))]
        return all(self.allocator.alloc(f"request {self.count}", kind) is not None for kind in order)

def make_policy(policy, budget, page_bytes, weights):
    def pages(request):
        return sum(request.values())

    def units(request):
        return sum(page_bytes[kind] // unit * count for kind, count in request.items())

    allocator = LcmAllocator(page_bytes, budget)
    unit = math.gcd(*page_bytes.values())
    if policy == "lcm":
        return LcmPolicy(allocator, pages)
    if policy == "max":
        return Policy({"all": budget // max(page_bytes.values())}, lambda r: {"all": pages(r)}, pages)
    if policy == "gcd":
        return Policy({"all": budget // unit}, lambda r: {"all": units(r)}, units)
    if policy == "static":
        total = sum(weights[kind] for kind in page_bytes)
        return Policy({t: budget * weights[t] // total // page_bytes[t] for t in page_bytes}, dict, pages)
    raise ValueError(f"policy {policy}?")

def fit(policy, budget, page_bytes, requests, weights=None):
    chosen = make_policy(policy, budget, page_bytes, weights)
    admitted = needed = entries = 0
    for request in requests:
        if not chosen.admit(request):
            break
        admitted += 1
        needed += sum(page_bytes[kind] * count for kind, count in request.items())
        entries += chosen.entries(request)
    return admitted, needed, entries

@dataclass(frozen=True)
class Spec:
    kind: str
    block_size: int
    window: int
    token_bytes: int

    @property
    def page(self):
        return self.block_size * self.token_bytes

    def with_page(self, page):
        factor, rest = divmod(page, self.page)
        if rest:
            raise NotImplementedError(f"{page} bytes are no multiple of {self.page}")
        return Spec(self.kind, self.block_size * factor, self.window, self.token_bytes)

def parse(layers):
    return [(name, Spec(*spec)) for name, spec in layers]

def unify(parsed):
    largest = max(spec.page for _, spec in parsed)
    return [(name, spec.with_page(largest)) for name, spec in parsed]

def make_groups(parsed):
    by_spec = {}
    for name, spec in parsed:
        by_spec.setdefault(spec, []).append(name)
    few = min(map(len, by_spec.values()))
    many = max(map(len, by_spec.values()))
    group_size = many if many < 1.5 * few else few
    result = []
    for spec, names in by_spec.items():
        k = math.ceil(len(names) / group_size)
        result += [(spec, names[i::k]) for i in range(k)]
    return result

def unify_page_size(layers):
    return [(name, astuple(spec)) for name, spec in unify(parse(layers))]

def get_kv_cache_groups(layers):
    return [names for _, names in make_groups(parse(layers))]

def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    specs, groups = zip(*make_groups(unify(parse(layers))))
    page = specs[0].page
    width = max(map(len, groups))
    num_blocks = num_gpu_blocks_override
    if num_blocks is None:
        num_blocks = max(0, available // page // width)
    return {
        "groups": list(groups),
        "block_sizes": [spec.block_size for spec in specs],
        "page_bytes": page,
        "num_blocks": num_blocks,
        "tensors": [[names[i] for names in groups if len(names) > i] for i in range(width)],
        "tensor_bytes": page * num_blocks,
        "padding_layers": sum(width - len(names) for names in groups),
        "alignment": math.lcm(*(spec.block_size for spec in specs)),
    }

def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    needs = {
        "full": lambda window: num_tokens,
        "sliding": lambda window: min(num_tokens, window),
        "cross": lambda window: num_encoder_tokens,
    }
    total = used = 0
    for kind, count, window in layers:
        if kind not in needs:
            raise ValueError(f"kind {kind}?")
        total += count * (num_tokens + num_encoder_tokens)
        used += count * needs[kind](window)
    return 1 - Fraction(used, total)
