"""Closures, sorted lists, itertools."""

import bisect
import heapq
import math
from collections import defaultdict, namedtuple
from fractions import Fraction
from functools import reduce
from itertools import accumulate, chain, count, groupby, repeat, takewhile

GroupSpec = namedtuple("GroupSpec", "id kind size window skip tail")


def spec_of(group_id, kind, size, window, caching):
    if size < 1:
        raise ValueError("block_size must be positive")
    if kind == "full":
        skip, tail = (lambda n: 0), (lambda k: k)
    elif kind == "sliding":
        if window < 2:
            raise ValueError("window must be 2 or more")
        before = window - 1
        skip, tail = (lambda n: max(0, n - before)), (lambda k: min(k, math.ceil(before / size)))
    elif kind == "mamba":
        skip, tail = (lambda n: max(0, n - 1)), (lambda k: min(k, 1))
    elif kind == "cross" and not caching:
        skip, tail = (lambda n: 0), (lambda k: k)
    else:
        raise ValueError(f"{kind} is impossible here")
    return GroupSpec(group_id, kind, size, window, skip, tail)


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        self._specs = tuple(spec_of(i, k, s, w, enable_caching) for i, (k, s, w) in enumerate(groups))
        self._pool = block_pool
        self._caching = enable_caching
        self._unit = reduce(math.lcm, (spec.size for spec in self._specs), 1)
        self.req_to_blocks = defaultdict(lambda: [[] for _ in self._specs])
        self._entered = {}  # request_id -> tokens whose blocks have been entered

    def _probe(self, request):
        """A function that says which blocks each group has for a length, or None."""
        hashes = [request.block_hashes(spec.size) for spec in self._specs]
        memo = {}

        def block(g, i):
            if (g, i) not in memo:
                memo[g, i] = self._pool.get_cached_block(hashes[g][i], g)
            return memo[g, i]

        def rows(length):
            found = []
            for spec in self._specs:
                k = length // spec.size
                first = k - spec.tail(k)
                row = [block(spec.id, i) for i in range(first, k)]
                if None in row:
                    return None
                found.append(list(chain(repeat(self._pool.null_block, first), row)))
            return found

        return rows

    def get_computed_blocks(self, request):
        if self._caching:
            rows = self._probe(request)
            top = (request.num_tokens - 1) // self._unit * self._unit
            for length in range(top, 0, -self._unit):
                found = rows(length)
                if found is not None:
                    return found, length
        return [[] for _ in self._specs], 0

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens must be positive")
        pool, name = self._pool, request.request_id
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        tables = self.req_to_blocks[name]
        hits = new_computed_blocks if new_computed_blocks else [[]] * len(tables)

        for spec, table in zip(self._specs, tables):
            for i in reversed(range(min(spec.skip(computed) // spec.size, len(table)))):
                if not table[i].is_null:
                    pool.free_blocks([table[i]])
                    table[i] = pool.null_block

        lacking = []
        for spec, table, hit in zip(self._specs, tables, hits):
            slots = request.num_encoder_tokens if spec.kind == "cross" else total
            lacking.append(max(0, (slots + spec.size - 1) // spec.size - len(table) - len(hit)))
        idle = [b for b in chain.from_iterable(hits) if b.ref_cnt == 0 and b is not pool.null_block]
        if len(idle) + sum(lacking) > pool.num_free:
            return None

        for table, hit in zip(tables, hits):
            pool.touch(hit)
            table += hit
        taken = iter(pool.get_new_blocks(sum(lacking)))
        result = [[next(taken) for _ in range(n)] for n in lacking]
        for table, new in zip(tables, result):
            table += new
        if self._caching:
            self._enter(request, tables, total)
        return result

    def _enter(self, request, tables, total):
        name = request.request_id
        start, end = self._entered.get(name, 0), total // self._unit * self._unit
        if end > start:
            for spec, table in zip(self._specs, tables):
                part = slice(start // spec.size, end // spec.size)
                self._pool.cache_full_blocks(table[part], request.block_hashes(spec.size)[part], spec.id)
            self._entered[name] = end

    def free(self, request):
        self._entered.pop(request.request_id, None)
        for table in self.req_to_blocks.pop(request.request_id, ()):
            self._pool.free_blocks(table[::-1])


class LcmAllocator:
    """Keeps, besides the dicts that can be read, sorted lists of what alloc looks for."""

    def __init__(self, page_bytes, budget):
        if not page_bytes or budget < 0 or any(size < 1 for size in page_bytes.values()):
            raise ValueError("bad arguments")
        self._bytes = dict(page_bytes)
        self.large_page_bytes = reduce(math.lcm, self._bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // n for t, n in self._bytes.items()}
        self.free_large_pages = list(range(self.num_large_pages))
        self.owner = {}
        self.slots = {t: {} for t in self._bytes}
        self._type = {}  # large page -> type
        self._holes = {t: [] for t in self._bytes}  # sorted ids of empty slots
        self._cached = {t: [] for t in self._bytes}  # sorted (last_access, -prefix_length, id)
        self._page_heap = []  # (key, large page, version), some of them out of date
        self._version = defaultdict(int)

    def _type_ok(self, type_):
        if type_ not in self._bytes:
            raise ValueError(f"no type {type_}")

    def _page_slots(self, large):
        ratio = self.ratio[self._type[large]]
        return range(large * ratio, large * ratio + ratio)

    def _set(self, type_, slot, state):
        """The only place where the state of a slot changes; None takes the slot away."""
        old = self.slots[type_].pop(slot, None)
        if old == "empty":
            self._holes[type_].remove(slot)
        elif isinstance(old, tuple):
            self._cached[type_].remove((old[0], -old[1], slot))
        if state is None:
            return
        self.slots[type_][slot] = state
        if state == "empty":
            bisect.insort(self._holes[type_], slot)
        elif state != "used":
            bisect.insort(self._cached[type_], (state[0], -state[1], slot))

    def _changed(self, large):
        """Enter the page into the heap if it can be evicted as it is now."""
        self._version[large] += 1
        if large in self._type:
            states = [self.slots[self._type[large]][slot] for slot in self._page_slots(large)]
            keys = [(s[0], -s[1]) for s in states if isinstance(s, tuple)]
            if keys and "used" not in states:
                heapq.heappush(self._page_heap, (max(keys), large, self._version[large]))

    def _begin(self, large, type_, request_id):
        self._type[large] = type_
        self.owner[large] = request_id
        for slot in self._page_slots(large):
            self._set(type_, slot, "empty")
        return self._page_slots(large)[0]

    def _end(self, large):
        for slot in self._page_slots(large):
            self._set(self._type[large], slot, None)
        del self._type[large], self.owner[large]

    def _oldest_page(self):
        while self._page_heap:
            _, large, version = self._page_heap[0]
            if version == self._version[large]:
                return large
            heapq.heappop(self._page_heap)
        return None

    def _pick(self, request_id, type_):
        holes = [(slot, self.owner[slot // self.ratio[type_]]) for slot in self._holes[type_]]
        for slot, owner in holes:
            if owner == request_id:
                return slot
        if self.free_large_pages:
            return self._begin(self.free_large_pages.pop(0), type_, request_id)
        large = self._oldest_page()
        if large is not None:
            self._end(large)
            return self._begin(large, type_, request_id)
        for slot, owner in holes:
            if owner is None:
                return slot
        if holes:
            return holes[0][0]
        if self._cached[type_]:
            return self._cached[type_][0][2]
        return None

    def alloc(self, request_id, type_):
        self._type_ok(type_)
        slot = self._pick(request_id, type_)
        if slot is not None:
            large = slot // self.ratio[type_]
            self._set(type_, slot, "used")
            if self.owner[large] is None:
                self.owner[large] = request_id
            self._changed(large)
        return slot

    def _demand(self, type_, slot, good):
        self._type_ok(type_)
        if slot not in self.slots[type_] or not good(self.slots[type_][slot]):
            raise ValueError(f"slot {slot} of {type_}")
        return slot // self.ratio[type_]

    def free(self, type_, slot):
        large = self._demand(type_, slot, lambda state: state == "used")
        self._set(type_, slot, "empty")
        if {self.slots[type_][s] for s in self._page_slots(large)} == {"empty"}:
            self._end(large)
            self.free_large_pages.append(large)
        self._changed(large)

    def release(self, type_, slot, last_access, prefix_length):
        large = self._demand(type_, slot, lambda state: state == "used")
        self._set(type_, slot, (last_access, prefix_length))
        self._changed(large)

    def reuse(self, type_, slot):
        large = self._demand(type_, slot, lambda state: isinstance(state, tuple))
        self._set(type_, slot, "used")
        self._changed(large)

    def remove_request(self, request_id):
        self.owner.update({large: None for large, who in self.owner.items() if who == request_id})

    def byte_offset(self, type_, slot):
        self._type_ok(type_)
        if slot not in range(self.num_large_pages * self.ratio[type_]):
            raise ValueError(f"slot {slot} of {type_}")
        return slot * self._bytes[type_]


def fit(policy, budget, page_bytes, requests, weights=None):
    allocator = LcmAllocator(page_bytes, budget)
    types = list(page_bytes)

    def pages(request):
        return [request.get(t, 0) for t in types]

    def dot(request, prices):
        return sum(n * price for n, price in zip(pages(request), prices))

    sizes = [page_bytes[t] for t in types]
    ones = [1] * len(types)
    g = math.gcd(*sizes)
    if policy == "gcd":
        prices = [size // g for size in sizes]
    else:
        prices = ones

    if policy == "lcm":
        def goes(done, number):
            order = chain.from_iterable(repeat(t, n) for t, n in zip(types, pages(requests[number])))
            return all(allocator.alloc(f"r{number}", t) is not None for t in order)
    elif policy in ("max", "gcd"):
        room = budget // (max(sizes) if policy == "max" else g)

        def goes(done, number):
            return sum(dot(request, prices) for request in done) <= room
    elif policy == "static":
        whole = sum(weights[t] for t in types)
        rooms = [budget * weights[t] // whole // page_bytes[t] for t in types]

        def goes(done, number):
            return all(sum(column) <= room for column, room in zip(zip(*map(pages, done)), rooms))
    else:
        raise ValueError(f"no policy {policy}")

    n = sum(1 for _ in takewhile(lambda i: goes(requests[:i + 1], i), range(len(requests))))
    return n, sum(dot(r, sizes) for r in requests[:n]), sum(dot(r, prices) for r in requests[:n])


def _pages(layers):
    return [spec[1] * spec[3] for _, spec in layers]


def unify_page_size(layers):
    pages = _pages(layers)
    largest = max(pages)
    if any(largest % page for page in pages):
        raise NotImplementedError("a page size does not divide the largest one")
    return [
        (name, (spec[0], spec[1] * (largest // page), *spec[2:]))
        for (name, spec), page in zip(layers, pages)
    ]


def _bundles(layers):
    """Pairs of a spec and the names of its layers, in the order of first appearance."""
    first = {}
    for position, (_, spec) in enumerate(layers):
        first.setdefault(tuple(spec), position)
    rank = sorted((first[tuple(spec)], position) for position, (_, spec) in enumerate(layers))
    return [
        (tuple(layers[where][1]), [layers[position][0] for _, position in members])
        for where, members in groupby(rank, key=lambda pair: pair[0])
    ]


def _split(layers):
    bundles = _bundles(layers)
    counts = sorted(len(names) for _, names in bundles)
    size = counts[-1] if counts[-1] * 2 < counts[0] * 3 else counts[0]
    return [
        (spec, names[i::k])
        for spec, names in bundles
        for k in [-(-len(names) // size)]
        for i in range(k)
    ]


def get_kv_cache_groups(layers):
    return [names for _, names in _split(layers)]


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    unified = unify_page_size(layers)
    spec_by_name = dict(unified)
    groups = get_kv_cache_groups(layers)
    specs = [spec_by_name[group[0]] for group in groups]
    page, width = _pages(unified)[0], max(map(len, groups))
    sizes = [spec[1] for spec in specs]
    number = num_gpu_blocks_override or max(0, available // page // width)
    rows = ([group[i] for group in groups if group[i:]] for i in count())
    return dict(
        groups=groups,
        block_sizes=sizes,
        page_bytes=page,
        num_blocks=number,
        tensors=list(takewhile(bool, rows)),
        tensor_bytes=page * number,
        padding_layers=width * len(groups) - len(layers),
        alignment=list(accumulate(sizes, math.lcm))[-1],
    )


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    def wanted(kind, window):
        if kind == "sliding":
            return min(num_tokens, window)
        if kind in ("full", "cross"):
            return num_tokens if kind == "full" else num_encoder_tokens
        raise ValueError(f"no kind {kind}")

    needed = sum(n * wanted(kind, window) for kind, n, window in layers)
    allocated = sum(n for _, n, _ in layers) * (num_tokens + num_encoder_tokens)
    return Fraction(allocated - needed, allocated)
