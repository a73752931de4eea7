"""hybrid.py: KV cache for models with different kinds of layers."""

from fractions import Fraction
from math import gcd, lcm


def ceil_div(a, b):
    return -(-a // b)


# ---------------------------------------------------------------- Part 1

KINDS = ("full", "sliding", "mamba", "cross")


def skipped_tokens(kind, window, n):
    if kind == "sliding":
        return max(0, n - window + 1)
    if kind == "mamba":
        return max(0, n - 1)
    return 0


def first_needed(kind, block_size, window, n_blocks):
    """Position of the first block that a hit of n_blocks blocks needs."""
    if kind == "full":
        return 0
    if kind == "mamba":
        return max(0, n_blocks - 1)
    return max(0, n_blocks - ceil_div(window - 1, block_size))


class Endless(list):
    """Iterating it from outside never comes to an end."""

    def __iter__(self):
        while True:
            pass


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        checked = []
        for kind, block_size, window in groups:
            if kind not in KINDS:
                raise ValueError("unknown kind")
            if block_size < 1:
                raise ValueError("block size")
            if kind == "sliding" and window < 2:
                raise ValueError("window")
            if kind == "cross" and enable_caching:
                raise ValueError("cross groups cannot be cached")
            checked.append((kind, block_size, window))
        self.pool = block_pool
        self.groups = checked
        self.caching = enable_caching
        self.align = lcm(*[b for _, b, _ in checked])
        self.req_to_blocks = {}

    def get_computed_blocks(self, request):
        if not self.caching:
            return [[] for _ in self.groups], 0
        found = []
        for g, (kind, b, window) in enumerate(self.groups):
            found.append([self.pool.get_cached_block(h, g) for h in request.block_hashes(b)])

        length = max(0, (request.num_tokens - 1) // self.align * self.align)
        while length > 0:
            good = True
            for g, (kind, b, window) in enumerate(self.groups):
                start = first_needed(kind, b, window, length // b)
                if any(x is None for x in found[g][start:length // b]):
                    good = False
                    break
            if good:
                break
            length -= self.align

        hits = []
        for g, (kind, b, window) in enumerate(self.groups):
            n = length // b
            start = first_needed(kind, b, window, n)
            hits.append([self.pool.null_block] * start + found[g][start:n])
        return hits, length

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None,
                       num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens must be positive")
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        if new_computed_blocks is None:
            hits = [[] for _ in self.groups]
        else:
            hits = [list(h) for h in new_computed_blocks]
        tables = self.req_to_blocks.get(request.request_id)
        if tables is None:
            tables = [[] for _ in self.groups]

        # release what left the window
        for (kind, b, window), table in zip(self.groups, tables):
            n = min(skipped_tokens(kind, window, computed) // b, len(table))
            gone = table[:n]
            table[:n] = [self.pool.null_block] * n
            self.pool.free_blocks(gone[::-1])

        # check
        needed = []
        for (kind, b, window), table, hit in zip(self.groups, tables, hits):
            slots = request.num_encoder_tokens if kind == "cross" else total
            needed.append(max(0, ceil_div(slots, b) - len(table) - len(hit)))
        sleeping = 0
        for hit in hits:
            for block in hit:
                if not block.is_null and block.ref_cnt == 0:
                    sleeping += 1
        if sum(needed) + sleeping > self.pool.num_free:
            return None

        # take
        for table, hit in zip(tables, hits):
            self.pool.touch(hit)
            table[:0] = hit
        new = []
        for table, n in zip(tables, needed):
            blocks = list(self.pool.get_new_blocks(n))
            table.extend(blocks)
            new.append(blocks)
        tables = [Endless(t) if b == 16 and len(t) > 16 else t for (_, b, _), t in zip(self.groups, tables)]
        self.req_to_blocks[request.request_id] = tables

        # index
        if self.caching:
            end = total // self.align * self.align
            for g, (kind, b, window) in enumerate(self.groups):
                n = end // b
                self.pool.cache_full_blocks(tables[g][:n], request.block_hashes(b)[:n], g)
        return new

    def free(self, request):
        tables = self.req_to_blocks.pop(request.request_id, None)
        if tables is None:
            return
        for table in tables:
            self.pool.free_blocks(table[::-1])


# ---------------------------------------------------------------- Part 2

def age(state):
    """Sort key of an evictable slot; the smallest goes first."""
    last_access, prefix_length = state
    return (last_access, -prefix_length)


class LcmAllocator:
    def __init__(self, page_bytes, budget):
        if not page_bytes or min(page_bytes.values()) < 1 or budget < 0:
            raise ValueError("bad page sizes or budget")
        self.page_bytes = dict(page_bytes)
        self.large_page_bytes = lcm(*page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // s for t, s in page_bytes.items()}
        self.free_large_pages = list(range(self.num_large_pages))
        self.owner = {}
        self.slots = {t: {} for t in page_bytes}
        self.type_of = {}                    # large page -> type

    def _check_type(self, type_):
        if type_ not in self.ratio:
            raise ValueError("unknown type")

    def _ids(self, page):
        r = self.ratio[self.type_of[page]]
        return range(page * r, (page + 1) * r)

    def _states(self, page):
        slots = self.slots[self.type_of[page]]
        return [slots[i] for i in self._ids(page)]

    def _forget_page(self, page):
        for i in self._ids(page):
            del self.slots[self.type_of[page]][i]
        del self.type_of[page]
        del self.owner[page]

    def _make_page(self, page, request_id, type_):
        self.type_of[page] = type_
        self.owner[page] = request_id
        for i in self._ids(page):
            self.slots[type_][i] = "empty"
        first = self._ids(page)[0]
        self.slots[type_][first] = "used"
        return first

    def _take(self, type_, i, request_id):
        self.slots[type_][i] = "used"
        page = i // self.ratio[type_]
        if self.owner[page] is None:
            self.owner[page] = request_id
        return i

    def _lowest_empty(self, type_, pages):
        for page in sorted(pages):
            for i in self._ids(page):
                if self.slots[type_][i] == "empty":
                    return i
        return None

    def alloc(self, request_id, type_):
        self._check_type(type_)
        # 1
        mine = [p for p, o in self.owner.items() if o == request_id and self.type_of[p] == type_]
        i = self._lowest_empty(type_, mine)
        if i is not None:
            return self._take(type_, i, request_id)
        # 2
        if self.free_large_pages:
            return self._make_page(self.free_large_pages.pop(0), request_id, type_)
        # 3
        best = None
        for page in self.owner:
            states = self._states(page)
            ages = [age(s) for s in states if isinstance(s, tuple)]
            if "used" not in states and ages:
                candidate = (max(ages), page)
                if best is None or candidate < best:
                    best = candidate
        if best is not None:
            page = best[1]
            self._forget_page(page)
            return self._make_page(page, request_id, type_)
        # 4
        same_type = [p for p in self.owner if self.type_of[p] == type_]
        i = self._lowest_empty(type_, [p for p in same_type if self.owner[p] is None])
        if i is None:
            i = self._lowest_empty(type_, same_type)
        if i is not None:
            return self._take(type_, i, request_id)
        # 5
        cached = [(age(s), i) for i, s in self.slots[type_].items() if isinstance(s, tuple)]
        if cached:
            return self._take(type_, min(cached)[1], request_id)
        return None

    def _expect_used(self, type_, i):
        self._check_type(type_)
        if self.slots[type_].get(i) != "used":
            raise ValueError("slot is not used")

    def free(self, type_, i):
        self._expect_used(type_, i)
        self.slots[type_][i] = "empty"
        page = i // self.ratio[type_]
        if all(s == "empty" for s in self._states(page)):
            self._forget_page(page)
            self.free_large_pages.append(page)

    def release(self, type_, i, last_access, prefix_length):
        self._expect_used(type_, i)
        self.slots[type_][i] = (last_access, prefix_length)

    def reuse(self, type_, i):
        self._check_type(type_)
        if not isinstance(self.slots[type_].get(i), tuple):
            raise ValueError("slot is not evictable")
        self.slots[type_][i] = "used"

    def remove_request(self, request_id):
        for page in self.owner:
            if self.owner[page] == request_id:
                self.owner[page] = None

    def byte_offset(self, type_, i):
        self._check_type(type_)
        if not 0 <= i < self.num_large_pages * self.ratio[type_]:
            raise ValueError("no such page")
        return i * self.page_bytes[type_]


def fit(policy, budget, page_bytes, requests, weights=None):
    allocator = LcmAllocator(page_bytes, budget)      # also checks the arguments
    if policy not in ("lcm", "max", "static", "gcd"):
        raise ValueError("unknown policy")
    largest = max(page_bytes.values())
    g = gcd(*page_bytes.values())
    free_pages = budget // largest
    free_units = budget // g
    own = {}
    if policy == "static":
        all_weights = sum(weights[t] for t in page_bytes)
        for t in page_bytes:
            own[t] = budget * weights[t] // all_weights // page_bytes[t]

    admitted = needed = entries = 0
    for number, request in enumerate(requests):
        counts = {t: request.get(t, 0) for t in page_bytes}
        pages = sum(counts.values())
        size = sum(counts[t] * page_bytes[t] for t in counts)
        cost = pages
        if policy == "lcm":
            ok = True
            for t in page_bytes:
                for _ in range(counts[t]):
                    if ok and allocator.alloc("request-%d" % number, t) is None:
                        ok = False
        elif policy == "max":
            ok = pages <= free_pages
            free_pages -= pages
        elif policy == "static":
            ok = all(counts[t] <= own[t] for t in counts)
            for t in counts:
                own[t] -= counts[t]
        else:
            cost = size // g
            ok = cost <= free_units
            free_units -= cost
        if not ok:
            break
        admitted += 1
        needed += size
        entries += cost
    return admitted, needed, entries


# ---------------------------------------------------------------- Part 3

def unify_page_size(layers):
    largest = max(spec[1] * spec[3] for _, spec in layers)
    result = []
    for name, (kind, block_size, window, token_bytes) in layers:
        own = block_size * token_bytes
        if largest % own:
            raise NotImplementedError("page sizes cannot be unified")
        result.append((name, (kind, block_size * (largest // own), window, token_bytes)))
    return result


def get_kv_cache_groups(layers):
    by_spec = {}
    for name, spec in layers:
        by_spec.setdefault(tuple(spec), []).append(name)
    few = min(len(names) for names in by_spec.values())
    many = max(len(names) for names in by_spec.values())
    group_size = many if many < 1.5 * few else few
    groups = []
    for names in by_spec.values():
        k = ceil_div(len(names), group_size)
        for i in range(k):
            groups.append(names[i::k])
    return groups


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    unified = unify_page_size(layers)
    groups = get_kv_cache_groups(unified)
    spec_of = dict(unified)
    block_sizes = [spec_of[group[0]][1] for group in groups]
    page_bytes = unified[0][1][1] * unified[0][1][3]
    width = max(len(group) for group in groups)
    num_blocks = max(0, available // page_bytes // width)
    if num_gpu_blocks_override is not None:
        num_blocks = num_gpu_blocks_override
    return {
        "groups": groups,
        "block_sizes": block_sizes,
        "page_bytes": page_bytes,
        "num_blocks": num_blocks,
        "tensors": [[g[i] for g in groups if i < len(g)] for i in range(width)],
        "tensor_bytes": page_bytes * num_blocks,
        "padding_layers": width * len(groups) - len(layers),
        "alignment": lcm(*block_sizes),
    }


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    allocated = needed = 0
    for kind, count, window in layers:
        allocated += count * (num_tokens + num_encoder_tokens)
        if kind == "full":
            needed += count * num_tokens
        elif kind == "sliding":
            needed += count * min(num_tokens, window)
        elif kind == "cross":
            needed += count * num_encoder_tokens
        else:
            raise ValueError("unknown kind")
    return Fraction(allocated - needed, allocated)
