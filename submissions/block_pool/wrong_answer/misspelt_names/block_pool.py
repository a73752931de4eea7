"""my solution for the block pool"""
from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil


@dataclass(eq=False, repr=False)
class KVCacheBlock:
    block_id: int
    block_size: int = 1
    ref_cnt: int = 0
    block_hash: object = None
    is_null: bool = False
    prev_free: "KVCacheBlock" = None
    next_free: "KVCacheBlock" = None
    payload: list = field(default_factory=list)

    def __post_init__(self):
        self.payload = [0] * self.block_size

    def reset_hash(self):
        self.block_hash = None

    def is_free(self):
        return not (self.prev_free is None or self.next_free is None)


def _join(left, right):
    left.next_free = right
    right.prev_free = left


class FreeKVCacheBlocksQueue:
    def __init__(self, blocks):
        self.fake_free_list_head = KVCacheBlock(-1)
        self.fake_free_list_tail = KVCacheBlock(-1)
        _join(self.fake_free_list_head, self.fake_free_list_tail)
        self.num_free_block = 0
        self.append_n(blocks)

    def popleft(self):
        return self.popleft_n(1)[0]

    def popleft_n(self, n):
        if n > self.num_free_block:
            raise ValueError(f"asked for {n} blocks, have {self.num_free_block}")
        out = []
        cur = self.fake_free_list_head.next_free
        for _ in range(n):
            nxt = cur.next_free
            cur.prev_free = cur.next_free = None
            out.append(cur)
            cur = nxt
        _join(self.fake_free_list_head, cur)
        self.num_free_block -= n
        return out

    def remove(self, block):
        if not block.is_free():
            raise RuntimeError(f"block {block.block_id} not in free list")
        _join(block.prev_free, block.next_free)
        block.prev_free = block.next_free = None
        self.num_free_block -= 1

    def append(self, block):
        if block.is_free():
            raise RuntimeError(f"block {block.block_id} already in free list")
        _join(self.fake_free_list_tail.prev_free, block)
        _join(block, self.fake_free_list_tail)
        self.num_free_block += 1

    def append_n(self, blocks):
        blocks = list(blocks)
        bad = [b.block_id for b in blocks if b.is_free()]
        if bad:
            raise RuntimeError(f"blocks {bad} already in free list")
        for b in blocks:
            self.append(b)

    def get_all_free_blocks(self):
        out = []
        cur = self.fake_free_list_head.next_free
        while cur.next_free is not None:
            out.append(cur)
            cur = cur.next_free
        return out


class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("num_blocks must be positive")
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlocksQueue(self.blocks[1:])
        self.cached_blocks_hash_to_block = defaultdict(dict)

    # --- allocation ---
    def get_new_blocks(self, n):
        new = self.free_block_queue.popleft_n(n)
        for b in new:
            self._maybe_evict(b)
            b.ref_cnt += 1
        return new

    def touch(self, blocks):
        for b in blocks:
            if b.is_null:
                continue
            if b.ref_cnt == 0:
                self.free_block_queue.remove(b)
            b.ref_cnt += 1

    def free_blocks(self, blocks):
        blocks = [b for b in blocks if not b.is_null]
        for b in blocks:
            if b.ref_cnt == 0:
                raise ValueError(f"block {b.block_id} freed twice")
        for b in blocks:
            b.ref_cnt -= 1
        self.free_block_queue.append_n(b for b in blocks if b.ref_cnt == 0)

    def get_num_free_block(self):
        return self.free_block_queue.num_free_block

    def get_usage(self):
        total = self.num_blocks - 1
        if not total:
            return 0.0
        return (total - self.get_num_free_block()) / total

    # --- index ---
    def cache_full_blocks(self, blocks, hashes):
        if not self.enable_caching:
            return
        for b, h in zip(blocks, hashes):
            if b.is_null or b.block_hash is not None:
                continue
            b.block_hash = h
            self.cached_blocks_hash_to_block[h][b.block_id] = b

    def get_cached_block(self, block_hash):
        if block_hash not in self.cached_blocks_hash_to_block:
            return None
        return next(iter(self.cached_blocks_hash_to_block[block_hash].values()))

    def _maybe_evict(self, block):
        h = block.block_hash
        if h is None or h not in self.cached_blocks_hash_to_block:
            return False
        group = self.cached_blocks_hash_to_block[h]
        if block.block_id not in group:
            return False
        group.pop(block.block_id)
        if len(group) == 0:
            self.cached_blocks_hash_to_block.pop(h)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        block_ids = list(block_ids)
        for i in block_ids:
            if not 0 <= i < self.num_blocks:
                raise ValueError(f"block id {i} out of range")
        for i in block_ids:
            self._maybe_evict(self.blocks[i])

    def reset_prefix_cache(self):
        if self.get_num_free_block() < self.num_blocks - 1:
            return False
        self.cached_blocks_hash_to_block.clear()
        for b in self.blocks:
            b.reset_hash()
        return True

    # --- copy on write ---
    def fork_block(self, block):
        if block.is_null or block.ref_cnt == 0:
            raise ValueError(f"block {block.block_id} has no users")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        new = self.get_new_blocks(1)[0]
        for i, x in enumerate(block.payload):
            new.payload[i] = x
        block.ref_cnt -= 1
        return new


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    return hash((parent_hash, tuple(token_ids), extra_keys))


def extra_keys(request, start, end):
    keys = ()
    if request.lora_name is not None:
        keys += (request.lora_name,)
    for mm_hash, offset, length in request.mm_features:
        if offset < end and offset + length > start:
            keys += ((mm_hash, offset - start),)
    if request.cache_salt is not None and start == 0:
        keys += (request.cache_salt,)
    return keys if keys else None


class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None,
                 cache_salt=None, mm_features=(), skip_reading_prefix_cache=False):
        self.request_id = request_id
        self.all_token_ids = list(token_ids)
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = tuple(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens = 0
        self.block_hashes = []
        self._hash_full_blocks()

    @property
    def num_tokens(self):
        return len(self.all_token_ids)

    def append_token_ids(self, token_ids):
        self.all_token_ids += list(token_ids)
        self._hash_full_blocks()

    def _hash_full_blocks(self):
        bs = self.block_size
        for k in range(len(self.block_hashes), self.num_tokens // bs):
            start, end = k * bs, (k + 1) * bs
            parent = self.block_hashes[k - 1] if k > 0 else None
            h = hash_block_tokens(parent, self.all_token_ids[start:end],
                                  extra_keys(self, start, end))
            self.block_hashes.append(h)


class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.req_to_blocks = defaultdict(list)
        self.num_cached_block = {}

    def get_computed_blocks(self, request):
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        found = []
        max_hits = (request.num_tokens - 1) // self.block_size
        for h in request.block_hashes:
            if len(found) == max_hits:
                break
            b = self.block_pool.get_cached_block(h)
            if b is None:
                break
            found.append(b)
        return found, len(found) * self.block_size

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        rid = request.request_id
        bs = self.block_size
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens must be >= 1")
        hits = list(new_computed_blocks) if new_computed_blocks else []
        held = len(self.req_to_blocks[rid])
        if hits and held:
            raise ValueError("request already has blocks")
        total = request.num_computed_tokens + len(hits) * bs
        need = ceil(min(total + num_new_tokens, self.max_model_len) / bs)
        num_new = max(need - held - len(hits), 0)
        in_queue = len([b for b in hits if b.ref_cnt == 0])
        if num_new + in_queue > self.block_pool.get_num_free_block():
            return None

        self.block_pool.touch(hits)
        self.req_to_blocks[rid] += hits
        new = self.block_pool.get_new_blocks(num_new)
        self.req_to_blocks[rid] += new

        if self.enable_caching:
            full = min(total + num_new_tokens, request.num_tokens) // bs
            first = self.num_cached_block.setdefault(rid, len(hits))
            self.block_pool.cache_full_blocks(self.req_to_blocks[rid][first:full],
                                              request.block_hashes[first:full])
            self.num_cached_block[rid] = max(first, full)
        return new

    def free(self, request):
        rid = request.request_id
        blocks = self.req_to_blocks.pop(rid, [])
        self.num_cached_block.pop(rid, None)
        self.block_pool.free_blocks(blocks[::-1])

    def write(self, request, pos, token):
        blocks = self.req_to_blocks[request.request_id]
        if pos < 0 or pos >= len(blocks) * self.block_size:
            raise ValueError(f"position {pos} not allocated")
        k = pos // self.block_size
        blocks[k] = self.block_pool.fork_block(blocks[k])
        blocks[k].payload[pos % self.block_size] = token
        return blocks[k]
