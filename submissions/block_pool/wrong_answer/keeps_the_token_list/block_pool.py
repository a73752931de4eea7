from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(eq=False)
class KVCacheBlock:
    block_id: int
    block_size: int = 1
    ref_cnt: int = 0
    block_hash: object = None
    is_null: bool = False
    prev_free: object = field(default=None, repr=False)
    next_free: object = field(default=None, repr=False)
    payload: list = field(default=None, repr=False)

    def __post_init__(self):
        self.payload = [0] * self.block_size

    def reset_hash(self):
        self.block_hash = None

    @property
    def idle(self):
        return self.ref_cnt == 0


def _link(left, right):
    left.next_free = right
    right.prev_free = left


class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        self.fake_free_list_head = KVCacheBlock(-1)
        self.fake_free_list_tail = KVCacheBlock(-1)
        _link(self.fake_free_list_head, self.fake_free_list_tail)
        self.num_free_blocks = 0
        for b in blocks:
            self.append(b)

    def __iter__(self):
        b = self.fake_free_list_head.next_free
        while b.block_id != -1:
            yield b
            b = b.next_free

    def popleft(self):
        if not self.num_free_blocks:
            raise ValueError("popleft from an empty queue")
        b = self.fake_free_list_head.next_free
        _link(self.fake_free_list_head, b.next_free)
        b.prev_free = None
        b.next_free = None
        self.num_free_blocks -= 1
        return b

    def popleft_n(self, n):
        if n > self.num_free_blocks:
            raise ValueError("not that many free blocks")
        out = []
        while len(out) < n:
            out.append(self.popleft())
        return out

    def remove(self, block):
        if block.prev_free is None or block.next_free is None:
            raise RuntimeError("remove: block is not queued")
        _link(block.prev_free, block.next_free)
        block.prev_free = None
        block.next_free = None
        self.num_free_blocks -= 1

    def append(self, block):
        if block.prev_free is not None and block.next_free is not None:
            raise RuntimeError("append: block is queued")
        _link(self.fake_free_list_tail.prev_free, block)
        _link(block, self.fake_free_list_tail)
        self.num_free_blocks += 1

    def append_n(self, blocks):
        blocks = list(blocks)
        for b in blocks:
            if b.prev_free is not None and b.next_free is not None:
                raise RuntimeError("append_n: block is queued")
        for b in blocks:
            self.append(b)

    def get_all_free_blocks(self):
        return list(self)


class HashIndex:
    """hash -> {block_id: block}"""

    def __init__(self):
        self.table = defaultdict(dict)

    def insert(self, block, h):
        block.block_hash = h
        self.table[h][block.block_id] = block

    def first(self, h):
        if h not in self.table:
            return None
        return next(iter(self.table[h].values()), None)

    def holds(self, block):
        h = block.block_hash
        return h is not None and h in self.table and block.block_id in self.table[h]

    def drop(self, block):
        bucket = self.table[block.block_hash]
        del bucket[block.block_id]
        if not bucket:
            del self.table[block.block_hash]
        block.reset_hash()

    def clear(self):
        self.table.clear()


class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("num_blocks < 1")
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.blocks[0].is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self._index = HashIndex()

    @property
    def null_block(self):
        return self.blocks[0]

    @property
    def cached_block_hash_to_block(self):
        return self._index.table

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        if len(self.blocks) == 1:
            return 0
        used = len(self.blocks) - 1 - self.get_num_free_blocks()
        return used / (len(self.blocks) - 1)

    def get_new_blocks(self, n):
        if n > self.get_num_free_blocks():
            raise ValueError("out of blocks")
        blocks = self.free_block_queue.popleft_n(n)
        for b in blocks:
            self._maybe_evict(b)
            b.ref_cnt += 1
        return blocks

    def touch(self, blocks):
        for b in blocks:
            if b.is_null:
                continue
            if b.idle:
                self.free_block_queue.remove(b)
            b.ref_cnt += 1

    def free_blocks(self, blocks):
        real = [b for b in blocks if not b.is_null]
        for b in real:
            if b.idle:
                raise ValueError("block freed twice")
        for b in real:
            b.ref_cnt -= 1
        self.free_block_queue.append_n([b for b in real if b.idle])

    def cache_full_blocks(self, blocks, hashes):
        if self.enable_caching:
            for b, h in zip(blocks, hashes):
                if b.is_null or b.block_hash is not None:
                    continue
                self._index.insert(b, h)

    def get_cached_block(self, block_hash):
        return self._index.first(block_hash)

    def _maybe_evict(self, block):
        if not self._index.holds(block):
            return False
        self._index.drop(block)
        return True

    def evict_blocks(self, block_ids):
        ids = list(block_ids)
        for i in ids:
            if i not in range(len(self.blocks)):
                raise ValueError("bad block id")
        for i in ids:
            self._maybe_evict(self.blocks[i])

    def reset_prefix_cache(self):
        if any(not b.idle for b in self.blocks[1:]):
            return False
        self._index.clear()
        for b in self.blocks:
            b.reset_hash()
        return True

    def fork_block(self, block):
        if block.is_null or block.idle:
            raise ValueError("fork of an unused block")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        fresh = self.get_new_blocks(1)[0]
        for i, value in enumerate(block.payload):
            fresh.payload[i] = value
        block.ref_cnt -= 1
        return fresh


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    return hash((parent_hash, tuple(token_ids), extra_keys))


def extra_keys(request, start, end):
    out = []
    if request.lora_name is not None:
        out.append(request.lora_name)
    for mm_hash, offset, length in request.mm_features:
        if offset >= end or offset + length <= start:
            continue
        out.append((mm_hash, offset - start))
    if start == 0 and request.cache_salt is not None:
        out.append(request.cache_salt)
    return tuple(out) if out else None


class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None, cache_salt=None,
                 mm_features=(), skip_reading_prefix_cache=False):
        self.request_id = request_id
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = tuple(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens = 0
        self._tokens = token_ids
        self.num_tokens = len(token_ids)
        self.block_hashes = []
        self._update_hashes()

    def _update_hashes(self):
        size = self.block_size
        for k in range(len(self.block_hashes), self.num_tokens // size):
            start, end = k * size, (k + 1) * size
            parent = self.block_hashes[k - 1] if k > 0 else None
            self.block_hashes.append(
                hash_block_tokens(parent, self._tokens[start:end], extra_keys(self, start, end)))

    def append_token_ids(self, token_ids):
        self._tokens = [*self._tokens, *token_ids]
        self.num_tokens += len(token_ids)
        self._update_hashes()


class _Entry:
    """What the manager knows about one request."""

    def __init__(self, hits):
        self.blocks = []
        self.cached = hits


class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self._entries = {}

    @property
    def req_to_blocks(self):
        return {rid: list(e.blocks) for rid, e in self._entries.items()}

    @property
    def num_cached_block(self):
        if not self.enable_caching:
            return {}
        return {rid: e.cached for rid, e in self._entries.items()}

    def get_computed_blocks(self, request):
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        hits = []
        longest = (request.num_tokens - 1) // self.block_size
        while len(hits) < longest:
            b = self.block_pool.get_cached_block(request.block_hashes[len(hits)])
            if b is None:
                break
            hits.append(b)
        return hits, self.block_size * len(hits)

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens < 1")
        hits = list(new_computed_blocks) if new_computed_blocks else []
        entry = self._entries.get(request.request_id)
        held = len(entry.blocks) if entry else 0
        if hits and held:
            raise ValueError("hits for a running request")
        pool = self.block_pool
        total = request.num_computed_tokens + len(hits) * self.block_size
        last = min(total + num_new_tokens, self.max_model_len)
        need = last // self.block_size + (last % self.block_size > 0)
        new = max(need - held - len(hits), 0)
        if new + sum(b.idle for b in hits) > pool.get_num_free_blocks():
            return None

        if entry is None:
            entry = self._entries[request.request_id] = _Entry(len(hits))
        pool.touch(hits)
        entry.blocks.extend(hits)
        fresh = pool.get_new_blocks(new)
        entry.blocks.extend(fresh)
        if self.enable_caching:
            self._cache(entry, request, min(total + num_new_tokens, request.num_tokens))
        return fresh

    def _cache(self, entry, request, tokens):
        full = tokens // self.block_size
        if full <= entry.cached:
            return
        self.block_pool.cache_full_blocks(entry.blocks[entry.cached:full],
                                          request.block_hashes[entry.cached:full])
        entry.cached = full

    def free(self, request):
        entry = self._entries.pop(request.request_id, None)
        if entry is not None:
            self.block_pool.free_blocks(reversed(entry.blocks))

    def write(self, request, pos, token):
        entry = self._entries.get(request.request_id)
        if entry is None or pos < 0 or pos >= len(entry.blocks) * self.block_size:
            raise ValueError("write outside the table")
        k = pos // self.block_size
        block = self.block_pool.fork_block(entry.blocks[k])
        entry.blocks[k] = block
        block.payload[pos % self.block_size] = token
        return block
