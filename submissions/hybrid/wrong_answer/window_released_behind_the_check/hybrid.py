"""A hybrid memory allocator."""

from collections import deque
from fractions import Fraction
from math import gcd, lcm


def ceil_div(a, b):
    return -(-a // b)


# --------------------------------------------------------------------------- Part 1


class FullGroup:
    """All tokens are kept, and a hit needs all blocks."""

    cached = True

    def __init__(self, group_id, block_size, window):
        self.group_id = group_id
        self.block_size = block_size
        self.window = window

    def slots(self, request, total):
        return total

    def skipped(self, computed):
        return 0

    def first_needed(self, num_blocks):
        """The first position (of num_blocks) that a hit needs."""
        return 0

    def find(self, pool, hashes, length):
        """Return the blocks of a hit of this length, or None."""
        num_blocks = length // self.block_size
        blocks = [pool.null_block] * num_blocks
        for i in range(self.first_needed(num_blocks), num_blocks):
            block = pool.get_cached_block(hashes[i], self.group_id)
            if block is None:
                return None
            blocks[i] = block
        return blocks


class SlidingGroup(FullGroup):
    """Only the window is kept."""

    def skipped(self, computed):
        return max(0, computed - self.window + 1)

    def first_needed(self, num_blocks):
        return max(0, num_blocks - ceil_div(self.window - 1, self.block_size))


class MambaGroup(FullGroup):
    """Only the last state is kept."""

    def skipped(self, computed):
        return max(0, computed - 1)

    def first_needed(self, num_blocks):
        return max(0, num_blocks - 1)


class CrossGroup(FullGroup):
    """Holds the tokens of the image."""

    cached = False

    def slots(self, request, total):
        return request.num_encoder_tokens


KINDS = {
    "full": FullGroup,
    "sliding": SlidingGroup,
    "mamba": MambaGroup,
    "cross": CrossGroup,
}


class HybridKVCacheManager:
    """Gives a request one block table for each group of layers, all from one pool."""

    def __init__(self, block_pool, groups, enable_caching=True):
        self.pool = block_pool
        self.enable_caching = enable_caching
        self.groups = []
        for group_id, (kind, block_size, window) in enumerate(groups):
            if kind not in KINDS:
                raise ValueError(f"unknown kind {kind!r}")
            if block_size < 1:
                raise ValueError("block size below 1")
            if kind == "sliding" and window < 2:
                raise ValueError("window below 2")
            if kind == "cross" and enable_caching:
                raise ValueError("cross attention cannot be cached")
            self.groups.append(KINDS[kind](group_id, block_size, window))
        self.alignment = lcm(*(group.block_size for group in self.groups))
        self.req_to_blocks = {}

    def get_computed_blocks(self, request):
        """Return (hits, tokens): the longest prefix that need not be computed again."""
        if not self.enable_caching:
            return [[] for _ in self.groups], 0
        hashes = {group.block_size: request.block_hashes(group.block_size) for group in self.groups}
        longest = max(0, request.num_tokens - 1) // self.alignment * self.alignment
        for length in range(longest, 0, -self.alignment):
            hits = []
            for group in self.groups:
                blocks = group.find(self.pool, hashes[group.block_size], length)
                if blocks is None:
                    break
                hits.append(blocks)
            else:
                return hits, length
        return [[] for _ in self.groups], 0

    def _release(self, tables, computed):
        for group, table in zip(self.groups, tables):
            count = min(group.skipped(computed) // group.block_size, len(table))
            old = table[:count]
            table[:count] = [self.pool.null_block] * count
            self.pool.free_blocks(reversed_list(old))

    def _missing(self, request, tables, hits, total):
        """How many new blocks each group needs."""
        counts = []
        for group, table, hit in zip(self.groups, tables, hits):
            wanted = ceil_div(group.slots(request, total), group.block_size)
            counts.append(max(0, wanted - len(table) - len(hit)))
        return counts

    def _cache(self, request, tables, total):
        end = total // self.alignment * self.alignment
        for group, table in zip(self.groups, tables):
            count = end // group.block_size
            hashes = request.block_hashes(group.block_size)
            self.pool.cache_full_blocks(table[:count], hashes[:count], group.group_id)

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        """Make room for more tokens; return the new blocks of each group, or None."""
        if num_new_tokens < 1:
            raise ValueError("no tokens")
        computed = request.num_computed_tokens + num_new_computed_tokens
        total = computed + num_new_tokens
        tables = self.req_to_blocks.get(request.request_id)
        if tables is None:
            tables = [[] for _ in self.groups]
        hits = new_computed_blocks
        if hits is None:
            hits = [[] for _ in self.groups]

        counts = self._missing(request, tables, hits, total)
        idle = sum(1 for hit in hits for block in hit if block.ref_cnt == 0 and not block.is_null)
        if sum(counts) + idle > self.pool.num_free:
            return None

        self._release(tables, computed)
        for table, hit in zip(tables, hits):
            self.pool.touch(hit)
            table.extend(hit)
        result = []
        for table, count in zip(tables, counts):
            blocks = self.pool.get_new_blocks(count)
            table.extend(blocks)
            result.append(list(blocks))
        self.req_to_blocks[request.request_id] = tables
        if self.enable_caching:
            self._cache(request, tables, total)
        return result

    def free(self, request):
        """Give back all blocks of a request."""
        for table in self.req_to_blocks.pop(request.request_id, []):
            self.pool.free_blocks(reversed_list(table))


def reversed_list(items):
    return list(reversed(items))


# --------------------------------------------------------------------------- Part 2


class LcmAllocator:
    """Cuts large pages into slots of several types."""

    def __init__(self, page_bytes, budget):
        check_sizes(page_bytes, budget)
        self.page_bytes = dict(page_bytes)
        self.large_page_bytes = lcm(*self.page_bytes.values())
        self.num_large_pages = budget // self.large_page_bytes
        self.ratio = {t: self.large_page_bytes // size for t, size in self.page_bytes.items()}
        self.free_large_pages = deque(range(self.num_large_pages))
        self.owner = {}
        self.slots = {t: {} for t in self.page_bytes}
        self.type_of = {}  # large page -> type

    def _check_type(self, page_type):
        if page_type not in self.page_bytes:
            raise ValueError(f"unknown type {page_type!r}")

    def _ids(self, large):
        """The slots on a large page in use."""
        ratio = self.ratio[self.type_of[large]]
        return range(large * ratio, (large + 1) * ratio)

    def _open(self, large, page_type, request_id):
        """Make a large page one of this type, and use its lowest slot."""
        self.type_of[large] = page_type
        self.owner[large] = request_id
        for slot in self._ids(large):
            self.slots[page_type][slot] = "empty"
        first = large * self.ratio[page_type]
        self.slots[page_type][first] = "used"
        return first

    def _close(self, large):
        """Forget a large page and its slots."""
        page_type = self.type_of[large]
        for slot in self._ids(large):
            del self.slots[page_type][slot]
        del self.type_of[large]
        del self.owner[large]

    def _victim(self):
        """The large page that is evicted first, or None."""
        best = None
        for large in sorted(self.owner):
            states = [self.slots[self.type_of[large]][slot] for slot in self._ids(large)]
            if "used" in states:
                continue
            keys = [(state[0], -state[1]) for state in states if state != "empty"]
            if keys and (best is None or max(keys) < best[0]):
                best = (max(keys), large)
        return None if best is None else best[1]

    def _take(self, slot, page_type, request_id):
        """Use a slot of a page that may have no owner."""
        self.slots[page_type][slot] = "used"
        large = slot // self.ratio[page_type]
        if self.owner[large] is None:
            self.owner[large] = request_id
        return slot

    def alloc(self, request_id, page_type):
        """Return the id of a slot that is used from now on, or None."""
        self._check_type(page_type)
        slots, ratio = self.slots[page_type], self.ratio[page_type]
        empty = sorted(slot for slot, state in slots.items() if state == "empty")
        # 1: a page of this request
        for slot in empty:
            if self.owner[slot // ratio] == request_id:
                return self._take(slot, page_type, request_id)
        # 2: a free page
        if self.free_large_pages:
            return self._open(self.free_large_pages.popleft(), page_type, request_id)
        # 3: a page that only caches
        large = self._victim()
        if large is not None:
            self._close(large)
            return self._open(large, page_type, request_id)
        # 4: somebody else's page
        for slot in empty:
            if self.owner[slot // ratio] is None:
                return self._take(slot, page_type, request_id)
        if empty:
            return self._take(empty[0], page_type, request_id)
        # 5: a slot that only caches
        keys = [(state[0], -state[1], slot) for slot, state in slots.items() if isinstance(state, tuple)]
        if keys:
            return self._take(min(keys)[2], page_type, request_id)
        return None

    def free(self, page_type, small_id):
        """A used slot becomes empty."""
        self._check_type(page_type)
        slots = self.slots[page_type]
        if slots.get(small_id) != "used":
            raise ValueError("this slot is not used")
        slots[small_id] = "empty"
        large = small_id // self.ratio[page_type]
        if all(slots[slot] == "empty" for slot in self._ids(large)):
            self._close(large)
            self.free_large_pages.append(large)

    def release(self, page_type, small_id, last_access, prefix_length):
        """A used slot only caches from now on."""
        self._check_type(page_type)
        if self.slots[page_type].get(small_id) != "used":
            raise ValueError("this slot is not used")
        self.slots[page_type][small_id] = (last_access, prefix_length)

    def reuse(self, page_type, small_id):
        """A slot that only caches is used again."""
        self._check_type(page_type)
        if not isinstance(self.slots[page_type].get(small_id), tuple):
            raise ValueError("this slot is not evictable")
        self.slots[page_type][small_id] = "used"

    def remove_request(self, request_id):
        """The large pages of a request have no owner any more."""
        for large, owner in self.owner.items():
            if owner == request_id:
                self.owner[large] = None

    def byte_offset(self, page_type, small_id):
        """Return the byte at which a slot starts."""
        self._check_type(page_type)
        if not 0 <= small_id < self.num_large_pages * self.ratio[page_type]:
            raise ValueError("no such slot")
        return small_id * self.page_bytes[page_type]


def check_sizes(page_bytes, budget):
    if not page_bytes or min(page_bytes.values()) < 1 or budget < 0:
        raise ValueError("bad sizes or budget")


def fit(policy, budget, page_bytes, requests, weights=None):
    """Return (admitted, needed, entries) for a way to share the memory."""
    check_sizes(page_bytes, budget)
    unit = 1
    if policy == "lcm":
        allocator = LcmAllocator(page_bytes, budget)
    elif policy == "max":
        left = budget // max(page_bytes.values())
    elif policy == "static":
        total = sum(weights.values())
        room = {t: budget * weights[t] // total // size for t, size in page_bytes.items()}
    elif policy == "gcd":
        unit = gcd(*page_bytes.values())
        left = budget // unit
    else:
        raise ValueError(f"unknown policy {policy!r}")

    admitted = needed = entries = 0
    for number, request in enumerate(requests):
        size = pages = 0
        fits = True
        for t in page_bytes:
            count = request.get(t, 0)
            size += count * page_bytes[t]
            pages += count * (page_bytes[t] // unit if policy == "gcd" else 1)
            if policy == "lcm":
                for _ in range(count):
                    if allocator.alloc(str(number), t) is None:
                        fits = False
                        break
            elif policy == "static":
                room[t] -= count
                fits = fits and room[t] >= 0
            if not fits:
                break
        if policy in ("max", "gcd"):
            left -= pages
            fits = left >= 0
        if not fits:
            break
        admitted += 1
        needed += size
        entries += pages
    return admitted, needed, entries


# --------------------------------------------------------------------------- Part 3


def page_size(spec):
    return spec[1] * spec[3]


def unify_page_size(layers):
    """Return the layers with pages of one size."""
    largest = max(page_size(spec) for _, spec in layers)
    result = []
    for name, spec in layers:
        if largest % page_size(spec):
            raise NotImplementedError(f"the page of {name} does not divide {largest}")
        kind, block_size, window, token_bytes = spec
        result.append((name, (kind, block_size * (largest // page_size(spec)), window, token_bytes)))
    return result


def get_kv_cache_groups(layers):
    """Return the names of the layers of each group."""
    by_spec = {}
    for name, spec in layers:
        by_spec.setdefault(tuple(spec), []).append(name)
    few = min(len(names) for names in by_spec.values())
    many = max(len(names) for names in by_spec.values())
    group_size = many if 2 * many < 3 * few else few
    groups = []
    for names in by_spec.values():
        k = ceil_div(len(names), group_size)
        groups.extend(names[i::k] for i in range(k))
    return groups


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    """Return groups, blocks and tensors as a dict."""
    unified = unify_page_size(layers)
    groups = get_kv_cache_groups(unified)
    specs = {name: spec for name, spec in unified}
    page_bytes = page_size(unified[0][1])
    width = max(len(group) for group in groups)
    block_sizes = [specs[group[0]][1] for group in groups]
    if num_gpu_blocks_override is None:
        num_blocks = max(0, available // page_bytes // width)
    else:
        num_blocks = num_gpu_blocks_override
    return {
        "groups": groups,
        "block_sizes": block_sizes,
        "page_bytes": page_bytes,
        "num_blocks": num_blocks,
        "tensors": [[group[i] for group in groups if i < len(group)] for i in range(width)],
        "tensor_bytes": page_bytes * num_blocks,
        "padding_layers": width * len(groups) - len(unified),
        "alignment": lcm(*block_sizes),
    }


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    """Return the share of memory that is wasted, as a Fraction."""
    allocated = needed = 0
    for kind, count, window in layers:
        if kind == "full":
            tokens = num_tokens
        elif kind == "sliding":
            tokens = min(num_tokens, window)
        elif kind == "cross":
            tokens = num_encoder_tokens
        else:
            raise ValueError(f"unknown kind {kind!r}")
        allocated += count * (num_tokens + num_encoder_tokens)
        needed += count * tokens
    return Fraction(allocated - needed, allocated)
