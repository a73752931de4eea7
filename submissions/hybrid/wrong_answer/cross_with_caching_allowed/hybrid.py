"""Hybrid KV cache allocator: one class for each kind of layer, one for each large page."""

import math
from collections import OrderedDict
from fractions import Fraction


class FullGroup:
    """The block tables of one group of layers; the other kinds differ in a few methods."""

    cacheable = True

    def __init__(self, pool, group_id, block_size, window):
        if block_size < 1:
            raise ValueError("block_size must be at least 1")
        self.pool = pool
        self.group_id = group_id
        self.block_size = block_size
        self.window = window
        self.tables = {}

    def table(self, request_id):
        return self.tables.get(request_id, [])

    def blocks_for(self, tokens):
        return math.ceil(Fraction(tokens, self.block_size))

    def skipped(self, computed):
        return 0

    def needed_positions(self, n_blocks):
        return range(n_blocks)

    def slots(self, request, total):
        return total

    def longest_hit(self, found, at_most, step):
        length = at_most
        while length > 0:
            positions = self.needed_positions(length // self.block_size)
            if all(found[i] is not None for i in positions):
                return length
            length -= step
        return 0

    def lookup(self, request):
        return [self.pool.get_cached_block(h, self.group_id)
                for h in request.block_hashes(self.block_size)]

    def hit_row(self, found, length):
        n = length // self.block_size
        row = [self.pool.null_block] * n
        for i in self.needed_positions(n):
            row[i] = found[i]
        return row

    def release(self, request_id, computed):
        table = self.table(request_id)
        n = min(self.skipped(computed) // self.block_size, len(table))
        leaving = [table[i] for i in range(n - 1, -1, -1)]
        for i in range(n):
            table[i] = self.pool.null_block
        self.pool.free_blocks(leaving)

    def missing(self, request, total, hits):
        have = len(self.table(request.request_id)) + len(hits)
        return max(0, self.blocks_for(self.slots(request, total)) - have)

    def take_hits(self, request_id, hits):
        self.pool.touch(hits)
        self.tables[request_id] = list(hits) + self.table(request_id)

    def take_new(self, request_id, n):
        new = self.pool.get_new_blocks(n)
        self.tables[request_id].extend(new)
        return list(new)

    def enter(self, request, length):
        n = length // self.block_size
        self.pool.cache_full_blocks(self.table(request.request_id)[:n],
                                    request.block_hashes(self.block_size)[:n],
                                    self.group_id)

    def free(self, request_id):
        self.pool.free_blocks(list(reversed(self.tables.pop(request_id, []))))


class SlidingGroup(FullGroup):
    def __init__(self, pool, group_id, block_size, window):
        super().__init__(pool, group_id, block_size, window)
        if window < 2:
            raise ValueError("window must be at least 2")

    def skipped(self, computed):
        return max(0, computed - self.window + 1)

    def needed_positions(self, n_blocks):
        return range(max(0, n_blocks - self.blocks_for(self.window - 1)), n_blocks)


class MambaGroup(FullGroup):
    def skipped(self, computed):
        return max(0, computed - 1)

    def needed_positions(self, n_blocks):
        return range(max(0, n_blocks - 1), n_blocks)


class CrossGroup(FullGroup):
    cacheable = False

    def slots(self, request, total):
        return request.num_encoder_tokens


GROUP_CLASSES = {"full": FullGroup, "sliding": SlidingGroup,
                 "mamba": MambaGroup, "cross": CrossGroup}


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        self.pool = block_pool
        self.enable_caching = enable_caching
        self.groups = []
        for group_id, (kind, block_size, window) in enumerate(groups):
            if kind not in GROUP_CLASSES:
                raise ValueError("unknown kind: %r" % (kind,))
            group = GROUP_CLASSES[kind](block_pool, group_id, block_size, window)
            self.groups.append(group)
        self.alignment = math.lcm(*(group.block_size for group in self.groups))

    @property
    def req_to_blocks(self):
        ids = {}
        for group in self.groups:
            for request_id in group.tables:
                ids[request_id] = None
        return {r: [list(group.table(r)) for group in self.groups] for r in ids}

    def get_computed_blocks(self, request):
        if not self.enable_caching:
            return [[] for _ in self.groups], 0
        found = [group.lookup(request) for group in self.groups]
        length = max(0, (request.num_tokens - 1) // self.alignment * self.alignment)
        while True:
            before = length
            for group, row in zip(self.groups, found):
                length = group.longest_hit(row, length, self.alignment)
            if length == before:
                break
        return [group.hit_row(row, length) for group, row in zip(self.groups, found)], length

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None,
                       num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens must be at least 1")
        rid = request.request_id
        hits = new_computed_blocks or [[] for _ in self.groups]
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens

        for group in self.groups:
            group.release(rid, computed)

        missing = [g.missing(request, total, h) for g, h in zip(self.groups, hits)]
        parked = {b.block_id for h in hits for b in h if not b.is_null and b.ref_cnt == 0}
        if sum(missing) + len(parked) > self.pool.num_free:
            return None

        for group, blocks in zip(self.groups, hits):
            group.take_hits(rid, blocks)
        new = [group.take_new(rid, n) for group, n in zip(self.groups, missing)]
        if self.enable_caching:
            for group in self.groups:
                group.enter(request, total - total % self.alignment)
        return new

    def free(self, request):
        for group in self.groups:
            group.free(request.request_id)


# --- large pages

class Slot:
    """One page of a type. state is "empty", "used" or (last_access, prefix_length)."""

    def __init__(self, small_id):
        self.small_id = small_id
        self.state = "empty"

    @property
    def evictable(self):
        return self.state != "empty" and self.state != "used"

    @property
    def key(self):
        last_access, prefix_length = self.state
        return last_access, -prefix_length


class LargePage:
    """A large page while it belongs to a type."""

    def __init__(self, large_id, type_, ratio, owner):
        self.large_id = large_id
        self.type = type_
        self.owner = owner
        self.slots = [Slot(large_id * ratio + place) for place in range(ratio)]

    @property
    def evictable(self):
        return (any(slot.evictable for slot in self.slots)
                and not any(slot.state == "used" for slot in self.slots))

    @property
    def key(self):
        return max(slot.key for slot in self.slots if slot.evictable)

    def empty_slot(self):
        return next((slot for slot in self.slots if slot.state == "empty"), None)


class LcmAllocator:
    def __init__(self, page_bytes, budget):
        if not page_bytes or any(size < 1 for size in page_bytes.values()):
            raise ValueError("page sizes must be positive")
        if budget < 0:
            raise ValueError("budget must not be negative")
        self.page_bytes = dict(page_bytes)
        self.large_page_bytes = math.lcm(*page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // n for t, n in page_bytes.items()}
        self._free = OrderedDict((i, None) for i in range(self.num_large_pages))
        self._pages = {}

    @property
    def free_large_pages(self):
        return list(self._free)

    @property
    def owner(self):
        return {page.large_id: page.owner for page in self._in_order()}

    @property
    def slots(self):
        result = {t: {} for t in self.page_bytes}
        for page in self._in_order():
            for slot in page.slots:
                result[page.type][slot.small_id] = slot.state
        return result

    def _in_order(self):
        return [self._pages[i] for i in sorted(self._pages)]

    def _check(self, type_):
        if type_ not in self.page_bytes:
            raise ValueError("unknown type: %r" % (type_,))

    def _slot(self, type_, small_id):
        self._check(type_)
        page = self._pages.get(small_id // self.ratio[type_])
        if page is None or page.type != type_:
            raise ValueError("no such slot: %r" % (small_id,))
        return page, page.slots[small_id % self.ratio[type_]]

    def _install(self, large_id, type_, request_id):
        page = LargePage(large_id, type_, self.ratio[type_], request_id)
        self._pages[large_id] = page
        return page, page.slots[0]

    def _choose(self, request_id, type_):
        pages = self._in_order()
        same_type = [page for page in pages if page.type == type_]
        for page in same_type:
            if page.owner == request_id and page.empty_slot():
                return page, page.empty_slot()
        if self._free:
            large_id, _ = self._free.popitem(last=False)
            return self._install(large_id, type_, request_id)
        evictable = [page for page in pages if page.evictable]
        if evictable:
            oldest = min(evictable, key=lambda page: (page.key, page.large_id))
            return self._install(oldest.large_id, type_, request_id)
        for candidates in ([p for p in same_type if p.owner is None], same_type):
            for page in candidates:
                if page.empty_slot():
                    return page, page.empty_slot()
        cached = [(slot.key, slot.small_id, page, slot)
                  for page in same_type for slot in page.slots if slot.evictable]
        if cached:
            return min(cached, key=lambda c: c[:2])[2:]
        return None, None

    def alloc(self, request_id, type_):
        self._check(type_)
        page, slot = self._choose(request_id, type_)
        if slot is None:
            return None
        if page.owner is None:
            page.owner = request_id
        slot.state = "used"
        return slot.small_id

    def free(self, type_, small_id):
        page, slot = self._slot(type_, small_id)
        if slot.state != "used":
            raise ValueError("slot %d is not used" % small_id)
        slot.state = "empty"
        if all(s.state == "empty" for s in page.slots):
            del self._pages[page.large_id]
            self._free[page.large_id] = None

    def release(self, type_, small_id, last_access, prefix_length):
        page, slot = self._slot(type_, small_id)
        if slot.state != "used":
            raise ValueError("slot %d is not used" % small_id)
        slot.state = (last_access, prefix_length)

    def reuse(self, type_, small_id):
        page, slot = self._slot(type_, small_id)
        if not slot.evictable:
            raise ValueError("slot %d is not evictable" % small_id)
        slot.state = "used"

    def remove_request(self, request_id):
        for page in self._pages.values():
            if page.owner == request_id:
                page.owner = None

    def byte_offset(self, type_, small_id):
        self._check(type_)
        if small_id not in range(self.num_large_pages * self.ratio[type_]):
            raise ValueError("no such page: %r" % (small_id,))
        return small_id * self.page_bytes[type_]


# --- policies

class LcmPolicy:
    def __init__(self, budget, page_bytes, weights):
        self.page_bytes = page_bytes
        self.allocator = LcmAllocator(page_bytes, budget)
        self.number = 0
        self.prepare(budget, weights)

    def prepare(self, budget, weights):
        pass

    def entries(self, counts):
        return sum(counts.values())

    def admit(self, counts):
        self.number += 1
        return all(self.allocator.alloc("r%d" % self.number, t) is not None
                   for t, n in counts.items() for _ in range(n))


class MaxPolicy(LcmPolicy):
    def prepare(self, budget, weights):
        self.room = budget // max(self.page_bytes.values())

    def admit(self, counts):
        self.room -= self.entries(counts)
        return self.room >= 0


class GcdPolicy(MaxPolicy):
    def prepare(self, budget, weights):
        self.unit = math.gcd(*self.page_bytes.values())
        self.room = budget // self.unit

    def entries(self, counts):
        return sum(n * (self.page_bytes[t] // self.unit) for t, n in counts.items())


class StaticPolicy(LcmPolicy):
    def prepare(self, budget, weights):
        total = sum(weights.values())
        self.room = {t: budget * weights[t] // total // size
                     for t, size in self.page_bytes.items()}

    def admit(self, counts):
        for t, n in counts.items():
            self.room[t] -= n
        return min(self.room.values()) >= 0


POLICIES = {"lcm": LcmPolicy, "max": MaxPolicy, "static": StaticPolicy, "gcd": GcdPolicy}


def fit(policy, budget, page_bytes, requests, weights=None):
    if policy not in POLICIES:
        raise ValueError("unknown policy: %r" % (policy,))
    LcmAllocator(page_bytes, budget)
    chosen = POLICIES[policy](budget, page_bytes, weights)
    admitted = needed = entries = 0
    for request in requests:
        counts = {t: request.get(t, 0) for t in page_bytes}
        if not chosen.admit(counts):
            break
        admitted += 1
        needed += sum(n * page_bytes[t] for t, n in counts.items())
        entries += chosen.entries(counts)
    return admitted, needed, entries


# --- layers to groups

def unify_page_size(layers):
    largest = max(spec[1] * spec[3] for _, spec in layers)
    unified = []
    for name, (kind, block_size, window, token_bytes) in layers:
        factor, rest = divmod(largest, block_size * token_bytes)
        if rest:
            raise NotImplementedError("pages of %s cannot be made as large" % name)
        unified.append((name, (kind, block_size * factor, window, token_bytes)))
    return unified


def get_kv_cache_groups(layers):
    same = OrderedDict()
    for name, spec in layers:
        same.setdefault(tuple(spec), []).append(name)
    sizes = sorted(len(names) for names in same.values())
    few, many = sizes[0], sizes[-1]
    group_size = many if many < 1.5 * few else few
    groups = []
    for names in same.values():
        k = math.ceil(len(names) / group_size)
        groups.extend(names[i::k] for i in range(k))
    return groups


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    unified = unify_page_size(layers)
    groups = get_kv_cache_groups(unified)
    specs = dict(unified)
    sizes = [specs[group[0]][1] for group in groups]
    page_bytes = unified[0][1][1] * unified[0][1][3]
    width = max(map(len, groups))
    num_blocks = num_gpu_blocks_override
    if num_blocks is None:
        num_blocks = max(0, available // page_bytes // width)
    tensors = [[] for _ in range(width)]
    for group in groups:
        for tensor, name in zip(tensors, group):
            tensor.append(name)
    return dict(groups=groups, block_sizes=sizes, page_bytes=page_bytes,
                num_blocks=num_blocks, tensors=tensors,
                tensor_bytes=page_bytes * num_blocks,
                padding_layers=width * len(groups) - len(layers),
                alignment=math.lcm(*sizes))


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    def per_layer(kind, window):
        if kind == "full":
            return num_tokens
        if kind == "sliding":
            return min(num_tokens, window)
        if kind == "cross":
            return num_encoder_tokens
        raise ValueError("kind without a rule: %r" % (kind,))

    needed = sum(count * per_layer(kind, window) for kind, count, window in layers)
    allocated = sum(count for _, count, _ in layers) * (num_tokens + num_encoder_tokens)
    return 1 - Fraction(needed, allocated)
