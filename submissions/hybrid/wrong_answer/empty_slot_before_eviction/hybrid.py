# hybrid.py
# My solution for the hybrid allocator lab.

import math
from fractions import Fraction


def round_up_div(a, b):
    result = a // b
    if a % b != 0:
        result = result + 1
    return result


# ===== Part 1 =====

class HybridKVCacheManager:

    def __init__(self, block_pool, groups, enable_caching=True):
        self.pool = block_pool
        self.caching = enable_caching
        self.kinds = []
        self.sizes = []
        self.windows = []
        i = 0
        while i < len(groups):
            kind, size, window = groups[i]
            if kind not in ["full", "sliding", "mamba", "cross"]:
                raise ValueError("wrong kind")
            if size < 1:
                raise ValueError("wrong block size")
            if kind == "sliding" and window < 2:
                raise ValueError("wrong window")
            if kind == "cross" and enable_caching:
                raise ValueError("no caching with cross")
            self.kinds.append(kind)
            self.sizes.append(size)
            self.windows.append(window)
            i = i + 1
        self.number_of_groups = len(self.kinds)
        self.a = math.lcm(*self.sizes)
        self.req_to_blocks = {}

    def empty_lists(self):
        result = []
        while len(result) < self.number_of_groups:
            result.append([])
        return result

    def start_of_hit(self, g, number_of_blocks):
        if self.kinds[g] == "full":
            return 0
        if self.kinds[g] == "mamba":
            start = number_of_blocks - 1
        else:
            start = number_of_blocks - round_up_div(self.windows[g] - 1, self.sizes[g])
        if start < 0:
            start = 0
        return start

    def get_computed_blocks(self, request):
        if not self.caching:
            return self.empty_lists(), 0
        all_hashes = []
        for size in self.sizes:
            all_hashes.append(request.block_hashes(size))

        # find the biggest possible T
        t = 0
        while t + self.a <= request.num_tokens - 1:
            t = t + self.a

        while t > 0:
            hits = self.empty_lists()
            ok = True
            g = 0
            while g < self.number_of_groups and ok:
                n = t // self.sizes[g]
                start = self.start_of_hit(g, n)
                i = 0
                while i < n and ok:
                    if i < start:
                        hits[g].append(self.pool.null_block)
                    else:
                        block = self.pool.get_cached_block(all_hashes[g][i], g)
                        if block is None:
                            ok = False
                        else:
                            hits[g].append(block)
                    i = i + 1
                g = g + 1
            if ok:
                return hits, t
            t = t - self.a
        return self.empty_lists(), 0

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None,
                       num_new_computed_tokens=0):
        # 1
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens")
        # 2
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens

        if request.request_id not in self.req_to_blocks:
            self.req_to_blocks[request.request_id] = self.empty_lists()
        tables = self.req_to_blocks[request.request_id]

        hits = self.empty_lists()
        if new_computed_blocks is not None:
            hits = []
            for blocks in new_computed_blocks:
                hits.append(list(blocks))

        # 3
        g = 0
        while g < self.number_of_groups:
            skipped = 0
            if self.kinds[g] == "sliding":
                skipped = computed - self.windows[g] + 1
            if self.kinds[g] == "mamba":
                skipped = computed - 1
            if skipped < 0:
                skipped = 0
            count = skipped // self.sizes[g]
            if count > len(tables[g]):
                count = len(tables[g])
            i = count - 1
            while i >= 0:
                old = tables[g][i]
                tables[g][i] = self.pool.null_block
                self.pool.free_blocks([old])
                i = i - 1
            g = g + 1

        # 4
        need = []
        summe = 0
        g = 0
        while g < self.number_of_groups:
            if self.kinds[g] == "cross":
                slots = request.num_encoder_tokens
            else:
                slots = total
            n = round_up_div(slots, self.sizes[g]) - len(tables[g]) - len(hits[g])
            if n < 0:
                n = 0
            need.append(n)
            summe = summe + n
            for block in hits[g]:
                if not block.is_null and block.ref_cnt == 0:
                    summe = summe + 1
            g = g + 1
        if summe > self.pool.num_free:
            return None

        # 5
        g = 0
        while g < self.number_of_groups:
            self.pool.touch(hits[g])
            tables[g] = hits[g] + tables[g]
            g = g + 1

        # 6
        result = self.empty_lists()
        g = 0
        while g < self.number_of_groups:
            while need[g] > 0:
                block = self.pool.get_new_blocks(1)[0]
                tables[g].append(block)
                result[g].append(block)
                need[g] = need[g] - 1
            g = g + 1

        # 7
        if self.caching:
            e = 0
            while e + self.a <= total:
                e = e + self.a
            g = 0
            while g < self.number_of_groups:
                hashes = request.block_hashes(self.sizes[g])
                i = 0
                while i < e // self.sizes[g]:
                    self.pool.cache_full_blocks([tables[g][i]], [hashes[i]], g)
                    i = i + 1
                g = g + 1

        # 8
        return result

    def free(self, request):
        if request.request_id in self.req_to_blocks:
            tables = self.req_to_blocks[request.request_id]
            for table in tables:
                while len(table) > 0:
                    self.pool.free_blocks([table.pop()])
            del self.req_to_blocks[request.request_id]


# ===== Part 2 =====

def is_older(a, b):
    # is the evictable state a evicted before the state b?
    if a[0] < b[0]:
        return True
    if a[0] > b[0]:
        return False
    return a[1] > b[1]


class LcmAllocator:

    def __init__(self, page_bytes, budget):
        if len(page_bytes) == 0 or budget < 0:
            raise ValueError("no type or bad budget")
        for t in page_bytes:
            if page_bytes[t] < 1:
                raise ValueError("page size")
        self.page_bytes = {}
        self.ratio = {}
        self.slots = {}
        self.large_page_bytes = math.lcm(*page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        for t in page_bytes:
            self.page_bytes[t] = page_bytes[t]
            self.ratio[t] = self.large_page_bytes // page_bytes[t]
            self.slots[t] = {}
        self.free_large_pages = list(range(self.num_large_pages))
        self.page_type = {}
        self.owner = {}

    def check_type(self, type):
        if type not in self.page_bytes:
            raise ValueError("unknown type")

    def ids_of_page(self, page):
        r = self.ratio[self.page_type[page]]
        return list(range(page * r, page * r + r))

    def start_page(self, page, request_id, type):
        self.page_type[page] = type
        self.owner[page] = request_id
        ids = self.ids_of_page(page)
        for i in ids:
            self.slots[type][i] = "empty"
        self.slots[type][ids[0]] = "used"
        return ids[0]

    def end_page(self, page):
        type = self.page_type[page]
        for i in self.ids_of_page(page):
            del self.slots[type][i]
        del self.page_type[page]
        del self.owner[page]

    def find_empty(self, type, who, anybody):
        for i in sorted(self.slots[type]):
            page = i // self.ratio[type]
            if self.slots[type][i] == "empty":
                if anybody or self.owner[page] == who:
                    return i
        return None

    def newest_of_page(self, page):
        # None if the page cannot be evicted
        newest = None
        type = self.page_type[page]
        for i in self.ids_of_page(page):
            state = self.slots[type][i]
            if state == "used":
                return None
            if state != "empty":
                if newest is None or is_older(newest, state):
                    newest = state
        return newest

    def mark_used(self, type, i, request_id):
        self.slots[type][i] = "used"
        page = i // self.ratio[type]
        if self.owner[page] is None:
            self.owner[page] = request_id

    def alloc(self, request_id, type):
        self.check_type(type)

        # my own pages
        i = self.find_empty(type, request_id, False)
        if i is not None:
            self.mark_used(type, i, request_id)
            return i

        # a free page
        if len(self.free_large_pages) > 0:
            page = self.free_large_pages.pop(0)
            return self.start_page(page, request_id, type)

        # any empty slot
        i = self.find_empty(type, None, False)
        if i is None:
            i = self.find_empty(type, None, True)
        if i is not None:
            self.mark_used(type, i, request_id)
            return i

        # throw out an old page
        best_page = None
        best_state = None
        for page in range(self.num_large_pages):
            state = self.newest_of_page(page)
            if state is not None:
                if best_page is None or is_older(state, best_state):
                    best_page = page
                    best_state = state
        if best_page is not None:
            self.end_page(best_page)
            return self.start_page(best_page, request_id, type)

        # throw out an old slot
        best = None
        for i in sorted(self.slots[type]):
            state = self.slots[type][i]
            if state != "empty" and state != "used":
                if best is None or is_older(state, self.slots[type][best]):
                    best = i
        if best is not None:
            self.mark_used(type, best, request_id)
        return best

    def free(self, type, id):
        self.check_type(type)
        if id not in self.slots[type] or self.slots[type][id] != "used":
            raise ValueError("not used")
        self.slots[type][id] = "empty"
        page = id // self.ratio[type]
        all_empty = True
        for i in self.ids_of_page(page):
            if self.slots[type][i] != "empty":
                all_empty = False
        if all_empty:
            self.end_page(page)
            self.free_large_pages.append(page)

    def release(self, type, id, last_access, prefix_length):
        self.check_type(type)
        if id not in self.slots[type] or self.slots[type][id] != "used":
            raise ValueError("not used")
        self.slots[type][id] = (last_access, prefix_length)

    def reuse(self, type, id):
        self.check_type(type)
        if id not in self.slots[type] or self.slots[type][id] in ["used", "empty"]:
            raise ValueError("not evictable")
        self.slots[type][id] = "used"

    def remove_request(self, request_id):
        for page in self.owner:
            if self.owner[page] == request_id:
                self.owner[page] = None

    def byte_offset(self, type, id):
        self.check_type(type)
        if id < 0 or id >= self.num_large_pages * self.ratio[type]:
            raise ValueError("wrong id")
        return id * self.page_bytes[type]


def fit(policy, budget, page_bytes, requests, weights=None):
    if policy not in ["lcm", "max", "static", "gcd"]:
        raise ValueError("unknown policy")
    allocator = LcmAllocator(page_bytes, budget)

    g = math.gcd(*page_bytes.values())
    max_left = budget // max(page_bytes.values())
    gcd_left = budget // g
    static_left = {}
    if policy == "static":
        weight_sum = sum(weights.values())
        for t in page_bytes:
            static_left[t] = (budget * weights[t] // weight_sum) // page_bytes[t]

    admitted = 0
    needed = 0
    entries = 0
    while admitted < len(requests):
        request = requests[admitted]
        request_bytes = 0
        request_pages = 0
        request_units = 0
        fits = True
        for t in page_bytes:
            n = request.get(t, 0)
            request_pages = request_pages + n
            request_bytes = request_bytes + n * page_bytes[t]
            request_units = request_units + n * (page_bytes[t] // g)
            if policy == "lcm":
                i = 0
                while i < n and fits:
                    if allocator.alloc("fit" + str(admitted), t) is None:
                        fits = False
                    i = i + 1
            if policy == "static":
                static_left[t] = static_left[t] - n
                if static_left[t] < 0:
                    fits = False
        if policy == "max":
            max_left = max_left - request_pages
            if max_left < 0:
                fits = False
        if policy == "gcd":
            gcd_left = gcd_left - request_units
            if gcd_left < 0:
                fits = False
        if not fits:
            break
        admitted = admitted + 1
        needed = needed + request_bytes
        if policy == "gcd":
            entries = entries + request_units
        else:
            entries = entries + request_pages
    return (admitted, needed, entries)


# ===== Part 3 =====

def unify_page_size(layers):
    largest = 0
    for layer in layers:
        size = layer[1][1] * layer[1][3]
        if size > largest:
            largest = size
    result = []
    for layer in layers:
        spec = layer[1]
        size = spec[1] * spec[3]
        if largest % size != 0:
            raise NotImplementedError("not a whole number")
        result.append((layer[0], (spec[0], spec[1] * (largest // size), spec[2], spec[3])))
    return result


def get_kv_cache_groups(layers):
    specs = []
    names = []
    for layer in layers:
        spec = list(layer[1])
        i = 0
        while i < len(specs) and specs[i] != spec:
            i = i + 1
        if i == len(specs):
            specs.append(spec)
            names.append([])
        names[i].append(layer[0])
    lengths = []
    for n in names:
        lengths.append(len(n))
    few = min(lengths)
    many = max(lengths)
    if many < 1.5 * few:
        group_size = many
    else:
        group_size = few
    groups = []
    for n in names:
        k = round_up_div(len(n), group_size)
        for i in range(k):
            group = []
            j = i
            while j < len(n):
                group.append(n[j])
                j = j + k
            groups.append(group)
    return groups


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    new_layers = unify_page_size(layers)
    groups = get_kv_cache_groups(new_layers)
    page_bytes = new_layers[0][1][1] * new_layers[0][1][3]
    block_sizes = []
    width = 0
    for group in groups:
        if len(group) > width:
            width = len(group)
        for layer in new_layers:
            if layer[0] == group[0]:
                block_sizes.append(layer[1][1])
                break
    if num_gpu_blocks_override is None:
        num_blocks = available // page_bytes // width
        if num_blocks < 0:
            num_blocks = 0
    else:
        num_blocks = num_gpu_blocks_override
    tensors = []
    for i in range(width):
        tensor = []
        for group in groups:
            if i < len(group):
                tensor.append(group[i])
        tensors.append(tensor)
    config = {}
    config["groups"] = groups
    config["block_sizes"] = block_sizes
    config["page_bytes"] = page_bytes
    config["num_blocks"] = num_blocks
    config["tensors"] = tensors
    config["tensor_bytes"] = page_bytes * num_blocks
    config["padding_layers"] = width * len(groups) - len(layers)
    config["alignment"] = math.lcm(*block_sizes)
    return config


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    allocated = 0
    needed = 0
    for kind, count, window in layers:
        i = 0
        if kind == "full":
            one = num_tokens
        elif kind == "sliding":
            one = min(num_tokens, window)
        elif kind == "cross":
            one = num_encoder_tokens
        else:
            raise ValueError("wrong kind")
        while i < count:
            allocated = allocated + num_tokens + num_encoder_tokens
            needed = needed + one
            i = i + 1
    return Fraction(allocated - needed, allocated)
