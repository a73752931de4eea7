# Lab "hybrid memory allocator"
import math
from collections import deque
from fractions import Fraction


class HybridKVCacheManager:
    FULL, SLIDING, MAMBA, CROSS = "full", "sliding", "mamba", "cross"

    def __init__(self, block_pool, groups, enable_caching=True):
        self._pool = block_pool
        self._kind, self._size, self._window = [], [], []
        for g in groups:
            self._kind.append(g[0])
            self._size.append(g[1])
            self._window.append(g[2])
        self._count = len(self._kind)
        self._caching = bool(enable_caching)
        self._validate()
        self._align = math.lcm(*self._size)
        # (request id, group) -> table
        self._tables = {}

    def _validate(self):
        for g in range(self._count):
            if self._kind[g] not in (self.FULL, self.SLIDING, self.MAMBA, self.CROSS):
                raise ValueError(f"group {g}: kind {self._kind[g]!r}")
            if self._size[g] < 1:
                raise ValueError(f"group {g}: block size {self._size[g]}")
            if self._kind[g] == self.SLIDING and self._window[g] < 2:
                raise ValueError(f"group {g}: window {self._window[g]}")
            if self._kind[g] == self.CROSS and self._caching:
                raise ValueError(f"group {g}: cross attention has no prefix caching")

    @property
    def req_to_blocks(self):
        view = {}
        for (request_id, g) in self._tables:
            if request_id not in view:
                view[request_id] = [list(self._tables[(request_id, i)])
                                    for i in range(self._count)]
        return view

    # -- prefix cache --------------------------------------------------------------

    def _tail_length(self, g):
        """How many of the last blocks a hit needs; None means all of them."""
        if self._kind[g] == self.SLIDING:
            return (self._window[g] - 1 + self._size[g] - 1) // self._size[g]
        if self._kind[g] == self.MAMBA:
            return 1
        return None

    def _try_length(self, g, hashes, length):
        """Blocks of group g for a hit of this length, or None."""
        n = length // self._size[g]
        tail = self._tail_length(g)
        begin = 0 if tail is None else max(0, n - tail)
        row = [self._pool.null_block] * begin
        for position in range(begin, n):
            block = self._pool.get_cached_block(hashes[position], g)
            if block is None:
                return None
            row.append(block)
        return row

    def get_computed_blocks(self, request):
        if not self._caching:
            return [[] for g in range(self._count)], 0
        hashes = [request.block_hashes(size) for size in self._size]
        longest = (request.num_tokens - 1) // self._align
        for multiple in range(longest, 0, -1):
            length = multiple * self._align
            rows = []
            for g in range(self._count):
                row = self._try_length(g, hashes[g], length)
                if row is None:
                    break
                rows.append(row)
            else:
                return rows, length
        return [[] for g in range(self._count)], 0

    # -- allocation ----------------------------------------------------------------

    def _release(self, request_id, computed):
        for g in range(self._count):
            table = self._tables.get((request_id, g))
            if not table:
                continue
            if self._kind[g] == self.SLIDING:
                skipped = computed - self._window[g] + 1
            elif self._kind[g] == self.MAMBA:
                skipped = computed - 1
            else:
                skipped = 0
            stop = min(max(0, skipped) // self._size[g], len(table))
            for position in reversed(range(stop)):
                block = table[position]
                if not block.is_null:
                    table[position] = self._pool.null_block
                    self._pool.free_blocks([block])

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None,
                       num_new_computed_tokens=0):
        if num_new_tokens < 1:
            raise ValueError("nothing to allocate")
        rid = request.request_id
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens

        self._release(rid, computed)

        want, price = [], 0
        for g in range(self._count):
            hit = new_computed_blocks[g] if new_computed_blocks is not None else ()
            slots = request.num_encoder_tokens if self._kind[g] == self.CROSS else total
            blocks = (slots + self._size[g] - 1) // self._size[g]
            n = max(0, blocks - len(self._tables.get((rid, g), ())) - len(hit))
            want.append(n)
            price += n + sum(1 for x in hit if x.ref_cnt == 0 and not x.is_null)
        if price > self._pool.num_free:
            return None

        for g in range(self._count):
            table = self._tables.setdefault((rid, g), [])
            if new_computed_blocks is not None:
                hit = list(new_computed_blocks[g])
                self._pool.touch(hit)
                self._tables[(rid, g)] = hit + table
        fresh = self._pool.get_new_blocks(sum(want))
        answer, position = [], 0
        for g in range(self._count):
            part = list(fresh[position:position + want[g]])
            position += want[g]
            self._tables[(rid, g)] += part
            answer.append(part)

        if self._caching:
            self._enter(request, total)
        return answer

    def _enter(self, request, total):
        for g in range(self._count):
            hashes = request.block_hashes(self._size[g])
            table = self._tables[(request.request_id, g)]
            for position in range(total // self._size[g]):
                block = table[position]
                if block.is_null or block.block_hash is not None:
                    continue
                self._pool.cache_full_blocks([block], [hashes[position]], g)

    def free(self, request):
        for g in range(self._count):
            table = self._tables.pop((request.request_id, g), [])
            while table:
                self._pool.free_blocks([table.pop()])


class LcmAllocator:
    EMPTY, USED = "empty", "used"

    def __init__(self, page_bytes, budget):
        if len(page_bytes) == 0 or budget < 0:
            raise ValueError("no types, or a negative budget")
        for t in page_bytes:
            if page_bytes[t] < 1:
                raise ValueError(f"type {t}: {page_bytes[t]} bytes")
        self._bytes = dict(page_bytes)
        self.large_page_bytes = math.lcm(*self._bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // b for t, b in self._bytes.items()}
        self.free_large_pages = deque(range(self.num_large_pages))
        self._type = [None] * self.num_large_pages       # None: the page is free
        self._owner = [None] * self.num_large_pages
        self._cells = [None] * self.num_large_pages

    @property
    def owner(self):
        return {p: self._owner[p] for p in range(self.num_large_pages)
                if self._type[p] is not None}

    @property
    def slots(self):
        view = {t: {} for t in self._bytes}
        for p in range(self.num_large_pages):
            if self._type[p] is not None:
                t = self._type[p]
                for place, state in enumerate(self._cells[p]):
                    view[t][p * self.ratio[t] + place] = state
        return view

    def _known(self, type_):
        if type_ not in self._bytes:
            raise ValueError(f"unknown type {type_!r}")

    def _locate(self, type_, small_id):
        """(large page, place) of an existing slot."""
        self._known(type_)
        if 0 <= small_id < self.num_large_pages * self.ratio[type_]:
            page, place = divmod(small_id, self.ratio[type_])
            if self._type[page] == type_:
                return page, place
        raise ValueError(f"no slot {small_id!r} of type {type_!r}")

    def _open(self, page, type_, request_id):
        self._type[page] = type_
        self._owner[page] = request_id
        self._cells[page] = [self.EMPTY] * self.ratio[type_]
        return self._use(page, 0, request_id)

    def _use(self, page, place, request_id):
        self._cells[page][place] = self.USED
        if self._owner[page] is None:
            self._owner[page] = request_id
        return page * self.ratio[self._type[page]] + place

    def _page_key(self, page):
        """Key for the eviction of the whole page, None when it must stay."""
        if self._type[page] is None or self.USED in self._cells[page]:
            return None
        keys = [(s[0], -s[1]) for s in self._cells[page] if s != self.EMPTY]
        return max(keys) if keys else None

    def alloc(self, request_id, type_):
        self._known(type_)
        with_room = [p for p in range(self.num_large_pages)
                     if self._type[p] == type_ and self.EMPTY in self._cells[p]]

        for p in with_room:
            if self._owner[p] == request_id:
                return self._use(p, self._cells[p].index(self.EMPTY), request_id)

        if self.free_large_pages:
            return self._open(self.free_large_pages.popleft(), type_, request_id)

        victim, victim_key = None, None
        for p in range(self.num_large_pages):
            key = self._page_key(p)
            if key is not None and (victim is None or key < victim_key):
                victim, victim_key = p, key
        if victim is not None:
            return self._open(victim, type_, request_id)

        with_room.sort(key=lambda p: (self._owner[p] is not None, p))
        if with_room:
            p = with_room[0]
            return self._use(p, self._cells[p].index(self.EMPTY), request_id)

        best = None
        for p in range(self.num_large_pages):
            if self._type[p] != type_:
                continue
            for place, state in enumerate(self._cells[p]):
                if isinstance(state, tuple):
                    key = (state[0], -state[1], p, place)
                    if best is None or key < best:
                        best = key
        if best is not None:
            return self._use(best[2], best[3], request_id)
        return None

    def free(self, type_, small_id):
        page, place = self._locate(type_, small_id)
        if self._cells[page][place] != self.USED:
            raise ValueError("free of a slot that is not used")
        self._cells[page][place] = self.EMPTY
        if self._cells[page].count(self.EMPTY) == len(self._cells[page]):
            self._type[page] = self._owner[page] = self._cells[page] = None
            self.free_large_pages.append(page)

    def release(self, type_, small_id, last_access, prefix_length):
        page, place = self._locate(type_, small_id)
        if self._cells[page][place] != self.USED:
            raise ValueError("release of a slot that is not used")
        self._cells[page][place] = (last_access, prefix_length)

    def reuse(self, type_, small_id):
        page, place = self._locate(type_, small_id)
        if self._cells[page][place] in (self.USED, self.EMPTY):
            raise ValueError("reuse of a slot that is not evictable")
        self._cells[page][place] = self.USED

    def remove_request(self, request_id):
        for p in range(self.num_large_pages):
            if self._owner[p] == request_id:
                self._owner[p] = None

    def byte_offset(self, type_, small_id):
        self._known(type_)
        if small_id < 0 or small_id >= self.num_large_pages * self.ratio[type_]:
            raise ValueError("outside of the memory")
        return small_id * self._bytes[type_]


class _Account:
    """Counts one kind of thing down."""

    def __init__(self, amount):
        self.left = amount

    def take(self, n):
        if n > self.left:
            return False
        self.left -= n
        return True


def fit(policy, budget, page_bytes, requests, weights=None):
    memory = LcmAllocator(page_bytes, budget)
    unit = math.gcd(*page_bytes.values())
    if policy == "lcm":
        def admit(name, wanted):
            return all(memory.alloc(name, t) is not None
                       for t in page_bytes for _ in range(wanted[t]))
    elif policy == "max":
        shared = _Account(budget // max(page_bytes.values()))

        def admit(name, wanted):
            return shared.take(sum(wanted.values()))
    elif policy == "static":
        whole = sum(weights.values())
        accounts = {t: _Account(budget * weights[t] // whole // page_bytes[t])
                    for t in page_bytes}

        def admit(name, wanted):
            return all(accounts[t].take(wanted[t]) for t in page_bytes)
    elif policy == "gcd":
        shared = _Account(budget // unit)

        def admit(name, wanted):
            return shared.take(sum(wanted[t] * (page_bytes[t] // unit) for t in page_bytes))
    else:
        raise ValueError(f"unknown policy {policy!r}")

    admitted, needed, entries = 0, 0, 0
    for request in requests:
        wanted = {t: request.get(t, 0) for t in page_bytes}
        if not admit(str(admitted), wanted):
            break
        admitted += 1
        size = sum(wanted[t] * page_bytes[t] for t in page_bytes)
        needed += size
        entries += size // unit if policy == "gcd" else sum(wanted.values())
    return admitted, needed, entries


def unify_page_size(layers):
    pages = [spec[1] * spec[3] for name, spec in layers]
    largest = max(pages)
    if any(largest % page != 0 for page in pages):
        raise NotImplementedError("the largest page is no multiple of every page")
    return [(name, (spec[0], spec[1] * largest // page, spec[2], spec[3]))
            for (name, spec), page in zip(layers, pages)]


def get_kv_cache_groups(layers):
    specs, members = [], []
    for name, spec in layers:
        spec = tuple(spec)
        if spec not in specs:
            specs.append(spec)
            members.append([])
        members[specs.index(spec)].append(name)
    few, many = min(map(len, members)), max(map(len, members))
    group_size = many if 2 * many < 3 * few else few
    result = []
    for names in members:
        k = (len(names) + group_size - 1) // group_size
        result += [names[i::k] for i in range(k)]
    return result


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    layers = unify_page_size(layers)
    groups = get_kv_cache_groups(layers)
    specs = {name: spec for name, spec in layers}
    config = {}
    config["groups"] = groups
    config["block_sizes"] = [specs[names[0]][1] for names in groups]
    config["page_bytes"] = layers[0][1][1] * layers[0][1][3]
    width = max(len(names) for names in groups)
    if num_gpu_blocks_override is None:
        config["num_blocks"] = max(0, available // config["page_bytes"] // width)
    else:
        config["num_blocks"] = num_gpu_blocks_override
    config["tensors"] = [[names[i] for names in groups if len(names) > i]
                         for i in range(width)]
    config["tensor_bytes"] = config["page_bytes"] * config["num_blocks"]
    config["padding_layers"] = sum(width - len(names) for names in groups)
    config["alignment"] = math.lcm(*config["block_sizes"])
    return config


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    needed, number = 0, 0
    for kind, count, window in layers:
        if kind not in ("full", "sliding", "cross"):
            raise ValueError(f"kind {kind!r}")
        number += count
        needed += count * {"full": num_tokens, "cross": num_encoder_tokens,
                           "sliding": min(num_tokens, window or 0)}[kind]
    return 1 - Fraction(needed, number * (num_tokens + num_encoder_tokens))
