import math


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        for kind, size, window in groups:
            if kind not in ("full", "sliding", "mamba", "cross"):
                raise ValueError("unknown kind")
            if size < 1:
                raise ValueError("block size")
            if kind == "sliding" and window < 2:
                raise ValueError("window")
            if kind == "cross" and enable_caching:
                raise ValueError("cross")
        self.pool = block_pool
        self.kinds = [group[0] for group in groups]
        self.sizes = [group[1] for group in groups]
        self.windows = [group[2] for group in groups]
        self.caching = enable_caching
        self.req_to_blocks = {}

    def get_computed_blocks(self, request):
        hits = [[] for kind in self.kinds]
        if not self.caching:
            return hits, 0
        length = 0
        align = math.lcm(*self.sizes)
        while length + align <= request.num_tokens - 1:
            found = []
            for g in range(len(self.kinds)):
                hashes = request.block_hashes(self.sizes[g])
                for i in range(length // self.sizes[g], (length + align) // self.sizes[g]):
                    found.append((g, self.pool.get_cached_block(hashes[i], g)))
            if any(block is None for g, block in found):
                break
            for g, block in found:
                hits[g].append(block)
            length += align
        return hits, length

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("nothing to do")
        total = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        tables = self.req_to_blocks.get(request.request_id)
        if tables is None:
            tables = [[] for kind in self.kinds]
        numbers = []
        for g in range(len(self.kinds)):
            slots = request.num_encoder_tokens if self.kinds[g] == "cross" else total
            number = math.ceil(slots / self.sizes[g]) - len(tables[g])
            if new_computed_blocks:
                number -= len(new_computed_blocks[g])
            numbers.append(number)
        if sum(numbers) > self.pool.num_free:
            return None
        result = []
        for g in range(len(self.kinds)):
            if new_computed_blocks:
                self.pool.touch(new_computed_blocks[g])
                tables[g].extend(new_computed_blocks[g])
            new = self.pool.get_new_blocks(numbers[g])
            tables[g].extend(new)
            result.append(new)
            if self.caching:
                full = total // self.sizes[g]
                self.pool.cache_full_blocks(tables[g][:full], request.block_hashes(self.sizes[g])[:full], g)
        self.req_to_blocks[request.request_id] = tables
        return result

    def free(self, request):
        for table in self.req_to_blocks[request.request_id]:
            self.pool.free_blocks(reversed(table))
        self.req_to_blocks[request.request_id] = None


class LcmAllocator:
    def __init__(self, page_bytes, budget):
        if not page_bytes or budget < 0:
            raise ValueError("no pages")
        for size in page_bytes.values():
            if size < 1:
                raise ValueError("size")
        self.page_bytes = dict(page_bytes)
        self.large_page_bytes = math.lcm(*page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {type: self.large_page_bytes // page_bytes[type] for type in page_bytes}
        self.free_large_pages = list(range(self.num_large_pages))
        self.owner = {}
        self.slots = {type: {} for type in page_bytes}

    def alloc(self, request_id, type):
        if type not in self.page_bytes:
            raise ValueError("type")
        for id in sorted(self.slots[type]):
            if self.slots[type][id] == "empty" and self.owner[id // self.ratio[type]] == request_id:
                self.slots[type][id] = "used"
                return id
        if self.free_large_pages:
            large = self.free_large_pages.pop(0)
            first = large * self.ratio[type]
            self.owner[large] = request_id
            for id in range(first, first + self.ratio[type]):
                self.slots[type][id] = "empty"
            self.slots[type][first] = "used"
            return first
        return None

    def free(self, type, id):
        if self.slots[type].get(id) != "used":
            raise ValueError("not used")
        self.slots[type][id] = "empty"
        large = id // self.ratio[type]
        for other in range(large * self.ratio[type], (large + 1) * self.ratio[type]):
            if self.slots[type][other] != "empty":
                return
        for other in range(large * self.ratio[type], (large + 1) * self.ratio[type]):
            del self.slots[type][other]
        self.owner.pop(large)
        self.free_large_pages.append(large)

    def release(self, type, id, last_access, prefix_length):
        if self.slots[type].get(id) != "used":
            raise ValueError("not used")
        self.slots[type][id] = (last_access, prefix_length)

    def byte_offset(self, type, id):
        return id * self.page_bytes[type]


def fit(policy, budget, page_bytes, requests, weights=None):
    raise NotImplementedError


def unify_page_size(layers):
    largest = max(spec[1] * spec[3] for name, spec in layers)
    result = []
    for name, (kind, size, window, token_bytes) in layers:
        factor = largest / (size * token_bytes)
        if factor != int(factor):
            raise NotImplementedError("pages differ")
        result.append((name, (kind, size * int(factor), window, token_bytes)))
    return result


def get_kv_cache_groups(layers):
    specs = {}
    for name, spec in layers:
        specs.setdefault(tuple(spec), []).append(name)
    few = min(len(names) for names in specs.values())
    many = max(len(names) for names in specs.values())
    size = many if many < 1.5 * few else few
    groups = []
    for names in specs.values():
        for start in range(0, len(names), size):
            groups.append(names[start:start + size])
    return groups


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    pass
