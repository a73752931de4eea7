import math
from fractions import Fraction


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        self.block_pool = block_pool
        self.kinds, self.sizes, self.windows = [], [], []
        self.caching = enable_caching
        for kind, size, window in groups:
            if kind not in ("full", "sliding", "mamba", "cross"):
                raise ValueError(kind)
            if size < 1:
                raise ValueError(size)
            if kind == "sliding" and window < 2:
                raise ValueError(window)
            if kind == "cross" and self.caching:
                raise ValueError("cross group with caching")
            self.kinds.append(kind)
            self.sizes.append(size)
            self.windows.append(window)
        self.lcm = 1
        for size in self.sizes:
            self.lcm = self.lcm * size // math.gcd(self.lcm, size)
        self.req_to_blocks = {}

    def get_computed_blocks(self, request):
        n = len(self.kinds)
        best = [[] for _ in range(n)], 0
        if not self.caching:
            return best
        hashes = [request.block_hashes(size) for size in self.sizes]
        T = self.lcm
        while T <= request.num_tokens:
            hits = []
            for g in range(n):
                row = self.lookup(g, hashes[g], T // self.sizes[g])
                if row is None:
                    break
                hits.append(row)
            if len(hits) == n:
                best = hits, T
            T += self.lcm
        return best

    def lookup(self, g, hashes, count):
        # how many blocks at the end are needed
        if self.kinds[g] == "sliding":
            need = math.ceil((self.windows[g] - 1) / self.sizes[g])
            if need > count:
                need = count
        elif self.kinds[g] == "mamba":
            need = 1
        else:
            need = count
        row = []
        for i in range(count):
            if i < count - need:
                row.append(self.block_pool.null_block)
            else:
                block = self.block_pool.get_cached_block(hashes[i], g)
                if block is None:
                    return None
                row.append(block)
        return row

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens must be at least 1")
        pool = self.block_pool
        n = len(self.kinds)
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        rid = request.request_id
        if rid not in self.req_to_blocks:
            self.req_to_blocks[rid] = [[] for _ in range(n)]
        tables = self.req_to_blocks[rid]
        if new_computed_blocks is None:
            new_computed_blocks = [[] for _ in range(n)]

        # release what no token looks at any more
        for g in range(n):
            skipped = 0
            if self.kinds[g] == "sliding":
                skipped = computed - self.windows[g] + 1
            elif self.kinds[g] == "mamba":
                skipped = computed - 1
            last = min(max(0, skipped) // self.sizes[g], len(tables[g])) - 1
            while last >= 0:
                block = tables[g][last]
                if not block.is_null:
                    tables[g][last] = pool.null_block
                    pool.free_blocks([block])
                last -= 1

        # is there room?
        missing = []
        demand = 0
        for g in range(n):
            slots = request.num_encoder_tokens if self.kinds[g] == "cross" else total
            need = (slots + self.sizes[g] - 1) // self.sizes[g]
            need -= len(tables[g]) + len(new_computed_blocks[g])
            if need < 0:
                need = 0
            missing.append(need)
            demand += need
            for block in new_computed_blocks[g]:
                if block.ref_cnt == 0 and not block.is_null:
                    demand += 1
        if demand > pool.num_free:
            return None

        for g in range(n):
            pool.touch(new_computed_blocks[g])
            tables[g] += new_computed_blocks[g]
        new_blocks = []
        for g in range(n):
            got = pool.get_new_blocks(missing[g])
            tables[g] += got
            new_blocks.append(got)

        if self.caching:
            end = total - total % self.lcm
            for g in range(n):
                hashes = request.block_hashes(self.sizes[g])
                for i in range(end // self.sizes[g]):
                    pool.cache_full_blocks([tables[g][i]], [hashes[i]], g)
        return new_blocks

    def free(self, request):
        if request.request_id not in self.req_to_blocks:
            return
        tables = self.req_to_blocks.pop(request.request_id)
        for table in tables:
            self.block_pool.free_blocks(table[::-1])


class LargePage:
    def __init__(self, type, owner):
        self.type = type
        self.owner = owner


class LcmAllocator:
    def __init__(self, page_bytes, budget):
        if len(page_bytes) == 0:
            raise ValueError("no types")
        for size in page_bytes.values():
            if size < 1:
                raise ValueError("size below 1")
        if budget < 0:
            raise ValueError("negative budget")
        self.sizes = page_bytes.copy()
        self.large_page_bytes = math.lcm(*page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {}
        self.slots = {}
        for t in page_bytes:
            self.ratio[t] = self.large_page_bytes // page_bytes[t]
            self.slots[t] = {}
        self.free_large_pages = list(range(self.num_large_pages))
        self.pages = {}

    @property
    def owner(self):
        return {number: page.owner for number, page in self.pages.items()}

    def slots_of(self, number):
        # slot id -> state, on one large page
        t = self.pages[number].type
        start = number * self.ratio[t]
        return {i: self.slots[t][i] for i in range(start, start + self.ratio[t])}

    def check(self, type):
        if type not in self.sizes:
            raise ValueError("unknown type")

    def drop(self, number):
        for i in self.slots_of(number):
            del self.slots[self.pages[number].type][i]
        del self.pages[number]

    def key(self, state):
        return state[0], -state[1]

    def alloc(self, request_id, type):
        self.check(type)
        mine = self.slots[type]
        chosen = None

        for i in mine:
            if mine[i] == "empty" and self.pages[i // self.ratio[type]].owner == request_id:
                if chosen is None or i < chosen:
                    chosen = i

        if chosen is None:
            number = None
            if len(self.free_large_pages) > 0:
                number = self.free_large_pages.pop(0)
            else:
                number = self.oldest_page()
                if number is not None:
                    self.drop(number)
            if number is not None:
                self.pages[number] = LargePage(type, request_id)
                chosen = number * self.ratio[type]
                for i in range(self.ratio[type]):
                    mine[chosen + i] = "empty"

        if chosen is None:
            empty = [i for i in mine if mine[i] == "empty"]
            orphans = [i for i in empty if self.pages[i // self.ratio[type]].owner is None]
            if orphans:
                chosen = min(orphans)
            elif empty:
                chosen = min(empty)
            else:
                evictable = [i for i in mine if mine[i] != "used"]
                if evictable:
                    chosen = min(evictable, key=lambda i: (self.key(mine[i]), i))

        if chosen is None:
            return None
        mine[chosen] = "used"
        page = self.pages[chosen // self.ratio[type]]
        if page.owner is None:
            page.owner = request_id
        return chosen

    def oldest_page(self):
        candidates = []
        for number in self.pages:
            states = list(self.slots_of(number).values())
            keys = [self.key(s) for s in states if s not in ("used", "empty")]
            if keys and "used" not in states:
                candidates.append((max(keys), number))
        if not candidates:
            return None
        return min(candidates)[1]

    def free(self, type, id):
        self.check(type)
        if self.slots[type].get(id) != "used":
            raise ValueError("not used")
        self.slots[type][id] = "empty"
        number = id // self.ratio[type]
        if set(self.slots_of(number).values()) == {"empty"}:
            self.drop(number)
            self.free_large_pages.append(number)

    def release(self, type, id, last_access, prefix_length):
        self.check(type)
        if self.slots[type].get(id) != "used":
            raise ValueError("not used")
        self.slots[type][id] = (last_access, prefix_length)

    def reuse(self, type, id):
        self.check(type)
        if self.slots[type].get(id, "empty") in ("empty", "used"):
            raise ValueError("not evictable")
        self.slots[type][id] = "used"

    def remove_request(self, request_id):
        for page in self.pages.values():
            if page.owner == request_id:
                page.owner = None

    def byte_offset(self, type, id):
        self.check(type)
        if id < 0 or id >= self.num_large_pages * self.ratio[type]:
            raise ValueError("no such slot")
        return self.sizes[type] * id


def fit(policy, budget, page_bytes, requests, weights=None):
    LcmAllocator(page_bytes, budget)  # raises the errors
    if policy == "lcm":
        return fit_lcm(budget, page_bytes, requests)
    if policy == "max":
        return fit_counted(budget // max(page_bytes.values()), page_bytes, requests, dict.fromkeys(page_bytes, 1))
    if policy == "gcd":
        unit = math.gcd(*page_bytes.values())
        return fit_counted(budget // unit, page_bytes, requests, {t: page_bytes[t] // unit for t in page_bytes})
    if policy == "static":
        return fit_static(budget, page_bytes, requests, weights)
    raise ValueError(policy)


def fit_lcm(budget, page_bytes, requests):
    allocator = LcmAllocator(page_bytes, budget)
    admitted = needed = entries = 0
    for request in requests:
        for t in page_bytes:
            for _ in range(request.get(t, 0)):
                if allocator.alloc("r%d" % admitted, t) is None:
                    return admitted, needed, entries
        admitted += 1
        needed += sum(request[t] * page_bytes[t] for t in request)
        entries += sum(request.values())
    return admitted, needed, entries


def fit_counted(units, page_bytes, requests, cost):
    admitted = needed = entries = 0
    for request in requests:
        want = sum(request[t] * cost[t] for t in request)
        if entries + want > units:
            break
        admitted += 1
        needed += sum(request[t] * page_bytes[t] for t in request)
        entries += want
    return admitted, needed, entries


def fit_static(budget, page_bytes, requests, weights):
    left = {}
    for t in page_bytes:
        left[t] = budget * weights[t] // sum(weights.values()) // page_bytes[t]
    admitted = needed = entries = 0
    for request in requests:
        if any(request[t] > left[t] for t in request):
            break
        for t in request:
            left[t] -= request[t]
            needed += request[t] * page_bytes[t]
            entries += request[t]
        admitted += 1
    return admitted, needed, entries


def unify_page_size(layers):
    pages = [block_size * token_bytes for _, (_, block_size, _, token_bytes) in layers]
    largest = max(pages)
    unified = []
    for (name, (kind, block_size, window, token_bytes)), page in zip(layers, pages):
        if largest % page != 0:
            raise NotImplementedError("page sizes do not divide each other")
        unified.append((name, (kind, block_size * largest // page, window, token_bytes)))
    return unified


def get_kv_cache_groups(layers):
    specs, members = [], []
    for name, spec in layers:
        spec = list(spec)
        if spec in specs:
            members[specs.index(spec)].append(name)
        else:
            specs.append(spec)
            members.append([name])
    counts = [len(m) for m in members]
    few, many = min(counts), max(counts)
    if many < 1.5 * few:
        group_size = many
    else:
        group_size = few
    groups = []
    for m in members:
        k = math.ceil(len(m) / group_size)
        part = [[] for _ in range(k)]
        for i, name in enumerate(m):
            part[i % k].append(name)
        groups += part
    return groups


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    layers = unify_page_size(layers)
    config = {}
    config["groups"] = groups = get_kv_cache_groups(layers)
    spec_of = dict(layers)
    config["block_sizes"] = [spec_of[g[0]][1] for g in groups]
    _, block_size, _, token_bytes = layers[0][1]
    config["page_bytes"] = block_size * token_bytes
    width = max(map(len, groups))
    config["num_blocks"] = max(0, available // config["page_bytes"] // width)
    if num_gpu_blocks_override is not None:
        config["num_blocks"] = num_gpu_blocks_override
    config["tensors"] = []
    for i in range(width):
        config["tensors"].append([g[i] for g in groups if len(g) > i])
    config["tensor_bytes"] = config["page_bytes"] * config["num_blocks"]
    config["padding_layers"] = width * len(groups) - len(layers)
    config["alignment"] = math.lcm(*config["block_sizes"])
    return config


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    number = 0
    needed = 0
    for kind, count, window in layers:
        number += count
        if kind == "full":
            needed += count * num_tokens
        elif kind == "sliding":
            needed += count * min(num_tokens, window)
        elif kind == "cross":
            needed += count * num_encoder_tokens
        else:
            raise ValueError(kind)
    allocated = number * (num_tokens + num_encoder_tokens)
    return 1 - Fraction(needed, allocated)
