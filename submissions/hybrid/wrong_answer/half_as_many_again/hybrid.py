"""One manager class, one allocator class, and functions."""

from fractions import Fraction
from math import gcd, lcm

KINDS = ("full", "sliding", "mamba", "cross")


def ceil_div(a, b):
    return -(-a // b)


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        self.groups = [tuple(group) for group in groups]
        for kind, size, window in self.groups:
            self._check_group(kind, size, window, enable_caching)
        self.pool = block_pool
        self.caching = enable_caching
        self.align = lcm(*(size for _, size, _ in self.groups))
        self.req_to_blocks = {}

    @staticmethod
    def _check_group(kind, size, window, caching):
        if kind not in KINDS:
            raise ValueError(f"unknown kind {kind!r}")
        if size < 1:
            raise ValueError("block size below 1")
        if kind == "sliding" and window < 2:
            raise ValueError("window below 2")
        if kind == "cross" and caching:
            raise ValueError("cross attention cannot be cached")

    # the table of kinds

    def _slots(self, g, request, total):
        return request.num_encoder_tokens if self.groups[g][0] == "cross" else total

    def _skipped(self, g, computed):
        kind, _, window = self.groups[g]
        if kind == "sliding":
            return max(0, computed - window + 1)
        if kind == "mamba":
            return max(0, computed - 1)
        return 0

    def _needed(self, g, count):
        """How many blocks at the end of a hit of `count` blocks the group wants to have."""
        kind, size, window = self.groups[g]
        if kind == "sliding":
            return min(count, ceil_div(window - 1, size))
        if kind == "mamba":
            return min(count, 1)
        return count

    # hits

    def _hit_of_group(self, g, hashes, count):
        first = count - self._needed(g, count)
        found = [self.pool.get_cached_block(h, g) for h in hashes[first:count]]
        if any(block is None for block in found):
            return None
        return [self.pool.null_block] * first + found

    def _hit_of_length(self, all_hashes, length):
        result = []
        for g, (_, size, _) in enumerate(self.groups):
            hit = self._hit_of_group(g, all_hashes[g], length // size)
            if hit is None:
                return None
            result.append(hit)
        return result

    def get_computed_blocks(self, request):
        if self.caching:
            all_hashes = [request.block_hashes(size) for _, size, _ in self.groups]
            length = (request.num_tokens - 1) // self.align * self.align
            while length > 0:
                hits = self._hit_of_length(all_hashes, length)
                if hits is not None:
                    return hits, length
                length -= self.align
        return [[] for _ in self.groups], 0

    # allocation

    def _release(self, g, table, computed):
        count = min(self._skipped(g, computed) // self.groups[g][1], len(table))
        gone = table[:count]
        table[:count] = [self.pool.null_block] * count
        self._give_back(gone)

    def _give_back(self, blocks):
        self.pool.free_blocks([block for block in reversed(blocks) if not block.is_null])

    def _missing(self, g, request, total, table, hits):
        wanted = ceil_div(self._slots(g, request, total), self.groups[g][1])
        return max(0, wanted - len(table) - len(hits))

    @staticmethod
    def _idle(hits):
        return sum(1 for block in hits if block.ref_cnt == 0 and not block.is_null)

    def _enter(self, request, tables, total):
        end = total // self.align * self.align
        for g, (_, size, _) in enumerate(self.groups):
            count = end // size
            self.pool.cache_full_blocks(tables[g][:count], request.block_hashes(size)[:count], g)

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("at least one new token")
        numbers = range(len(self.groups))
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        hits = new_computed_blocks or [[] for _ in numbers]
        tables = self.req_to_blocks.get(request.request_id) or [[] for _ in numbers]
        for g in numbers:
            self._release(g, tables[g], computed)
        missing = [self._missing(g, request, total, tables[g], hits[g]) for g in numbers]
        if sum(missing) + sum(self._idle(hit) for hit in hits) > self.pool.num_free:
            return None
        for table, hit in zip(tables, hits):
            self.pool.touch([block for block in hit if not block.is_null])
            table.extend(hit)
        new = [list(self.pool.get_new_blocks(count)) for count in missing]
        for table, blocks in zip(tables, new):
            table.extend(blocks)
        self.req_to_blocks[request.request_id] = tables
        if self.caching:
            self._enter(request, tables, total)
        return new

    def free(self, request):
        for table in self.req_to_blocks.pop(request.request_id, []):
            self._give_back(table)


class LcmAllocator:
    def __init__(self, page_bytes, budget):
        if not page_bytes or min(page_bytes.values()) < 1 or budget < 0:
            raise ValueError("bad page sizes or budget")
        self.page_bytes = dict(page_bytes)
        self.large_page_bytes = lcm(*self.page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // size for t, size in self.page_bytes.items()}
        self.free_large_pages = list(range(self.num_large_pages))
        self.owner = {}
        self.slots = {t: {} for t in self.page_bytes}

    def _check_type(self, kind):
        if kind not in self.page_bytes:
            raise ValueError(f"unknown type {kind!r}")

    def _large(self, kind, slot):
        return slot // self.ratio[kind]

    def _slots_of(self, kind, large):
        return range(large * self.ratio[kind], (large + 1) * self.ratio[kind])

    def _lowest_empty(self, kind, accepts):
        slots = self.slots[kind]
        return min((s for s in slots if slots[s] == "empty" and accepts(self.owner[self._large(kind, s)])), default=None)

    def _open_page(self, request_id, kind, large):
        self.owner[large] = request_id
        for slot in self._slots_of(kind, large):
            self.slots[kind][slot] = "empty"
        return large * self.ratio[kind]

    @staticmethod
    def _key(state):
        return state[0], -state[1]

    def _victim_page(self):
        best = None
        for kind in self.slots:
            for large in {self._large(kind, slot) for slot in self.slots[kind]}:
                states = [self.slots[kind][slot] for slot in self._slots_of(kind, large)]
                keys = [self._key(state) for state in states if isinstance(state, tuple)]
                if keys and "used" not in states:
                    candidate = (max(keys), large, kind)
                    if best is None or candidate[:2] < best[:2]:
                        best = candidate
        return best

    def _evict_page(self, request_id, kind):
        victim = self._victim_page()
        if victim is None:
            return None
        _, large, old_kind = victim
        self._close_page(old_kind, large)
        return self._open_page(request_id, kind, large)

    def _close_page(self, kind, large):
        for slot in self._slots_of(kind, large):
            del self.slots[kind][slot]
        del self.owner[large]

    def _oldest_slot(self, kind):
        keys = [(self._key(state), slot) for slot, state in self.slots[kind].items() if isinstance(state, tuple)]
        return min(keys)[1] if keys else None

    def _find(self, request_id, kind):
        slot = self._lowest_empty(kind, lambda owner: owner == request_id)
        if slot is None and self.free_large_pages:
            slot = self._open_page(request_id, kind, self.free_large_pages.pop(0))
        if slot is None:
            slot = self._evict_page(request_id, kind)
        if slot is None:
            slot = self._lowest_empty(kind, lambda owner: owner is None)
        if slot is None:
            slot = self._lowest_empty(kind, lambda owner: True)
        if slot is None:
            slot = self._oldest_slot(kind)
        return slot

    def alloc(self, request_id, kind):
        self._check_type(kind)
        slot = self._find(request_id, kind)
        if slot is not None:
            self.slots[kind][slot] = "used"
            large = self._large(kind, slot)
            if self.owner[large] is None:
                self.owner[large] = request_id
        return slot

    def _check_used(self, kind, slot):
        self._check_type(kind)
        if self.slots[kind].get(slot) != "used":
            raise ValueError(f"slot {slot} of {kind} is not used")

    def free(self, kind, slot):
        self._check_used(kind, slot)
        self.slots[kind][slot] = "empty"
        large = self._large(kind, slot)
        if all(self.slots[kind][s] == "empty" for s in self._slots_of(kind, large)):
            self._close_page(kind, large)
            self.free_large_pages.append(large)

    def release(self, kind, slot, last_access, prefix_length):
        self._check_used(kind, slot)
        self.slots[kind][slot] = (last_access, prefix_length)

    def reuse(self, kind, slot):
        self._check_type(kind)
        if not isinstance(self.slots[kind].get(slot), tuple):
            raise ValueError(f"slot {slot} of {kind} is not evictable")
        self.slots[kind][slot] = "used"

    def remove_request(self, request_id):
        for large, owner in self.owner.items():
            if owner == request_id:
                self.owner[large] = None

    def byte_offset(self, kind, slot):
        self._check_type(kind)
        if not 0 <= slot < self.num_large_pages * self.ratio[kind]:
            raise ValueError(f"no slot {slot} of {kind}")
        return slot * self.page_bytes[kind]


def admit_lcm(allocator, name, request):
    for kind in allocator.page_bytes:
        for _ in range(request.get(kind, 0)):
            if allocator.alloc(name, kind) is None:
                return False
    return True


def take(room, need):
    """Subtract need from room, if there is enough of everything."""
    if any(need[key] > room[key] for key in need):
        return False
    for key in need:
        room[key] -= need[key]
    return True


def fit(policy, budget, page_bytes, requests, weights=None):
    allocator = LcmAllocator(page_bytes, budget)
    sizes = allocator.page_bytes
    unit = gcd(*sizes.values())
    if policy == "lcm":
        room = {}
    elif policy == "max":
        room = {"": budget // max(sizes.values())}
    elif policy == "static":
        whole = sum(weights[t] for t in sizes)
        room = {t: budget * weights[t] // whole // sizes[t] for t in sizes}
    elif policy == "gcd":
        room = {"": budget // unit}
    else:
        raise ValueError(f"unknown policy {policy!r}")
    admitted = needed = entries = 0
    for number, request in enumerate(requests):
        pages = {t: request.get(t, 0) for t in sizes}
        units = sum(pages[t] * (sizes[t] // unit) for t in sizes)
        if policy == "lcm":
            good = admit_lcm(allocator, str(number), request)
        elif policy == "static":
            good = take(room, pages)
        else:
            good = take(room, {"": units if policy == "gcd" else sum(pages.values())})
        if not good:
            break
        admitted += 1
        needed += sum(pages[t] * sizes[t] for t in sizes)
        entries += units if policy == "gcd" else sum(pages.values())
    return admitted, needed, entries


def page_size(spec):
    return spec[1] * spec[3]


def unify_page_size(layers):
    largest = max(page_size(spec) for _, spec in layers)
    result = []
    for name, (kind, size, window, token_bytes) in layers:
        if largest % (size * token_bytes):
            raise NotImplementedError(f"page of {name} does not divide {largest}")
        result.append((name, (kind, size * (largest // (size * token_bytes)), window, token_bytes)))
    return result


def group_by_spec(layers):
    by_spec = {}
    for name, spec in layers:
        by_spec.setdefault(tuple(spec), []).append(name)
    return by_spec


def choose_group_size(by_spec):
    counts = [len(names) for names in by_spec.values()]
    few, many = min(counts), max(counts)
    if many <= 1.5 * few:
        return many
    return few


def groups_with_specs(layers):
    by_spec = group_by_spec(layers)
    group_size = choose_group_size(by_spec)
    result = []
    for spec, names in by_spec.items():
        k = ceil_div(len(names), group_size)
        for i in range(k):
            result.append((spec, names[i::k]))
    return result


def get_kv_cache_groups(layers):
    return [names for _, names in groups_with_specs(layers)]


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    pairs = groups_with_specs(unify_page_size(layers))
    groups = [names for _, names in pairs]
    sizes = [spec[1] for spec, _ in pairs]
    page = page_size(pairs[0][0])
    width = max(len(group) for group in groups)
    blocks = max(0, available // page // width)
    if num_gpu_blocks_override is not None:
        blocks = num_gpu_blocks_override
    return {
        "groups": groups,
        "block_sizes": sizes,
        "page_bytes": page,
        "num_blocks": blocks,
        "tensors": [[group[i] for group in groups if i < len(group)] for i in range(width)],
        "tensor_bytes": page * blocks,
        "padding_layers": width * len(groups) - len(layers),
        "alignment": lcm(*sizes),
    }


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    allocated = needed = 0
    for kind, count, window in layers:
        if kind == "full":
            each = num_tokens
        elif kind == "sliding":
            each = min(num_tokens, window)
        elif kind == "mamba":
            each = 1
        else:
            each = num_encoder_tokens
        allocated += count * (num_tokens + num_encoder_tokens)
        needed += count * each
    return Fraction(allocated - needed, allocated)
