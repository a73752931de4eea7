"""Lab hybrid allocator."""
from math import lcm


def blocks(tokens, size):
    return (tokens + size - 1) // size


class HybridKvCacheManager:
    """Part 1."""

    def __init__(self, pool, groups, enable_caching=True):
        self.pool = pool
        self.groups = list(groups)
        self.enable_caching = enable_caching
        for kind, size, window in groups:
            if kind not in ("full", "sliding", "mamba", "cross"):
                raise ValueError("kind")
            if size < 1:
                raise ValueError("block size")
        self.align = lcm(*[size for _, size, _ in groups])
        self.req_to_blocks = {}

    def get_computed_blocks(self, request):
        hits = [[] for _ in self.groups]
        if not self.enable_caching:
            return hits, 0
        best = None
        for g, (kind, size, window) in enumerate(self.groups):
            for h in request.block_hashes(size):
                block = self.pool.get_cached_block(h, g)
                if block is None:
                    break
                hits[g].append(block)
            length = len(hits[g]) * size
            if best is None or length < best:
                best = length
        best = min(best, request.num_tokens - 1) // self.align * self.align
        for g, (kind, size, window) in enumerate(self.groups):
            hits[g] = hits[g][:best // size]
        return hits, best

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None,
                       num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens")
        total = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        tables = self.req_to_blocks.setdefault(request.request_id, [[] for _ in self.groups])
        if new_computed_blocks:
            for table, hit in zip(tables, new_computed_blocks):
                self.pool.touch(hit)
                table.extend(hit)
        new = []
        for table, (kind, size, window) in zip(tables, self.groups):
            n = max(0, blocks(total, size) - len(table))
            if n > self.pool.num_free:
                return None
            fresh = self.pool.get_new_blocks(n)
            table.extend(fresh)
            new.append(list(fresh))
        if self.enable_caching:
            for g, (kind, size, window) in enumerate(self.groups):
                n = total // size
                self.pool.cache_full_blocks(tables[g][:n], request.block_hashes(size)[:n], g)
        return new

    def free(self, request):
        for table in self.req_to_blocks.pop(request.request_id):
            self.pool.free_blocks(table[::-1])


class LcmAllocator:
    """Part 2."""

    def __init__(self, page_bytes, budget):
        if not page_bytes or budget < 0:
            raise ValueError("arguments")
        self.page_bytes = dict(page_bytes)
        self.large_page_bytes = lcm(*page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // b for t, b in page_bytes.items()}
        self.free_large_pages = list(range(self.num_large_pages))
        self.owner = {}
        self.slots = {t: {} for t in page_bytes}

    def alloc(self, request_id, kind):
        if kind not in self.ratio:
            raise ValueError("type")
        for small in sorted(self.slots[kind]):
            page = small // self.ratio[kind]
            if self.slots[kind][small] == "empty" and self.owner[page] == request_id:
                self.slots[kind][small] = "used"
                return small
        if self.free_large_pages:
            page = self.free_large_pages.pop(0)
            self.owner[page] = request_id
            for place in range(self.ratio[kind]):
                self.slots[kind][page * self.ratio[kind] + place] = "empty"
            small = page * self.ratio[kind]
            self.slots[kind][small] = "used"
            return small
        return None

    def free(self, kind, small):
        if self.slots[kind].get(small) != "used":
            raise ValueError("not used")
        self.slots[kind][small] = "empty"

    def release(self, kind, small, last_access, prefix_length):
        raise NotImplementedError

    def remove_request(self, request_id):
        pass


def unify_page_size(layers):
    largest = max(size * token_bytes for _, (_, size, _, token_bytes) in layers)
    return [(name, (kind, largest // token_bytes, window, token_bytes))
            for name, (kind, size, window, token_bytes) in layers]


def get_kv_cache_group(layers):
    groups = {}
    for name, spec in layers:
        groups.setdefault(tuple(spec), []).append(name)
    return list(groups.values())
