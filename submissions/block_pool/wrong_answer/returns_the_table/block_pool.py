import math


class KVCacheBlock:
    def __init__(self, block_id, block_size=1):
        self.block_id, self.ref_cnt, self.block_hash, self.is_null = block_id, 0, None, False
        self.prev_free = self.next_free = None
        self.payload = [0] * block_size

    def reset_hash(self):
        self.block_hash = None

    def in_list(self):
        return self.prev_free is not None and self.next_free is not None

    def unlink(self):
        self.prev_free.next_free = self.next_free
        self.next_free.prev_free = self.prev_free
        self.prev_free = self.next_free = None

    def insert_before(self, other):
        self.prev_free, self.next_free = other.prev_free, other
        self.prev_free.next_free = self
        other.prev_free = self


class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        head = self.fake_free_list_head = KVCacheBlock(-1)
        tail = self.fake_free_list_tail = KVCacheBlock(-1)
        head.next_free, tail.prev_free = tail, head
        self.num_free_blocks = 0
        self.append_n(blocks)

    def popleft(self):
        return self.popleft_n(1)[0]

    def popleft_n(self, n):
        if self.num_free_blocks < n:
            raise ValueError("free list holds %d blocks, not %d" % (self.num_free_blocks, n))
        result = [None] * n
        for i in range(n):
            result[i] = self.fake_free_list_head.next_free
            result[i].unlink()
        self.num_free_blocks -= n
        return result

    def remove(self, block):
        if not block.in_list():
            raise RuntimeError("block %d not in free list" % block.block_id)
        block.unlink()
        self.num_free_blocks -= 1

    def append(self, block):
        self.append_n((block,))

    def append_n(self, blocks):
        blocks = list(blocks)
        if [b for b in blocks if b.in_list()]:
            raise RuntimeError("block in free list twice")
        for b in blocks:
            b.insert_before(self.fake_free_list_tail)
        self.num_free_blocks += len(blocks)

    def get_all_free_blocks(self):
        result, b = [], self.fake_free_list_head
        for _ in range(self.num_free_blocks):
            b = b.next_free
            result.append(b)
        return result


class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("num_blocks")
        self.enable_caching, self.block_size = enable_caching, block_size
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.null_block, *usable = self.blocks
        self.null_block.is_null = True
        self.num_usable = len(usable)
        self.free_block_queue = FreeKVCacheBlockQueue(usable)
        self.cached_block_hash_to_block = {}

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        if not self.num_usable:
            return 0
        return (self.num_usable - self.get_num_free_blocks()) / self.num_usable

    def get_new_blocks(self, n):
        result = self.free_block_queue.popleft_n(n)
        for b in result:
            b.ref_cnt = 1
            self._maybe_evict(b)
        return result

    def touch(self, blocks):
        for b in blocks:
            if b is self.null_block:
                continue
            b.ref_cnt += 1
            if b.ref_cnt == 1:
                self.free_block_queue.remove(b)

    def free_blocks(self, blocks):
        blocks = [b for b in blocks if b is not self.null_block]
        if min((b.ref_cnt for b in blocks), default=1) < 1:
            raise ValueError("double free")
        for b in blocks:
            b.ref_cnt -= 1
            if b.ref_cnt == 0:
                self.free_block_queue.append(b)

    def cache_full_blocks(self, blocks, hashes):
        if not self.enable_caching:
            return
        index = self.cached_block_hash_to_block
        for b, h in zip(blocks, hashes):
            if b is not self.null_block and b.block_hash is None:
                b.block_hash = h
                if h not in index:
                    index[h] = {}
                index[h][b.block_id] = b

    def get_cached_block(self, block_hash):
        for b in self.cached_block_hash_to_block.get(block_hash, {}).values():
            return b
        return None

    def _maybe_evict(self, block):
        index, h = self.cached_block_hash_to_block, block.block_hash
        if h is None or block.block_id not in index.get(h, {}):
            return False
        index[h].pop(block.block_id)
        if index[h] == {}:
            index.pop(h)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        block_ids = list(block_ids)
        if block_ids and (min(block_ids) < 0 or max(block_ids) >= len(self.blocks)):
            raise ValueError("block id out of range")
        for i in block_ids:
            self._maybe_evict(self.blocks[i])

    def reset_prefix_cache(self):
        if self.get_num_free_blocks() < self.num_usable:
            return False
        self.cached_block_hash_to_block.clear()
        for b in self.blocks:
            b.reset_hash()
        return True

    def fork_block(self, block):
        if block is self.null_block or not block.ref_cnt:
            raise ValueError("cannot fork")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        copy = self.get_new_blocks(1)[0]
        copy.payload[:] = block.payload[:]
        block.ref_cnt -= 1
        return copy


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    return hash((parent_hash, tuple(token_ids), extra_keys))


def extra_keys(request, start, end):
    lora = [request.lora_name] if request.lora_name is not None else []
    salt = [request.cache_salt] if request.cache_salt is not None and start == 0 else []
    media = [(h, off - start) for h, off, n in request.mm_features if off < end and off + n > start]
    return tuple(lora + media + salt) or None


class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None, cache_salt=None, mm_features=(),
                 skip_reading_prefix_cache=False):
        self.request_id, self.block_size = request_id, block_size
        self.lora_name, self.cache_salt, self.mm_features = lora_name, cache_salt, tuple(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_tokens = self.num_computed_tokens = 0
        self.block_hashes, self._open = [], []
        self.append_token_ids(token_ids)

    def append_token_ids(self, token_ids):
        for t in token_ids:
            self._open.append(t)
            self.num_tokens += 1
            if len(self._open) == self.block_size:
                keys = extra_keys(self, self.num_tokens - self.block_size, self.num_tokens)
                parent = self.block_hashes[-1] if self.block_hashes else None
                self.block_hashes.append(hash_block_tokens(parent, self._open, keys))
                self._open = []


class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.block_size, self.enable_caching, self.max_model_len = block_size, enable_caching, max_model_len
        self.req_to_blocks, self.num_cached_block = {}, {}

    def get_computed_blocks(self, request):
        hits = []
        if request.skip_reading_prefix_cache or not self.enable_caching:
            return hits, 0
        for h in request.block_hashes[:(request.num_tokens - 1) // self.block_size]:
            b = self.block_pool.get_cached_block(h)
            if b is None:
                break
            hits.append(b)
        return hits, len(hits) * self.block_size

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        rid, hits, size = request.request_id, new_computed_blocks or [], self.block_size
        old = self.req_to_blocks.get(rid, [])
        if num_new_tokens < 1 or (hits and old):
            raise ValueError("allocate_slots")
        total = request.num_computed_tokens + len(hits) * size
        need = math.ceil(min(total + num_new_tokens, self.max_model_len) / size)
        new = max(need - len(old) - len(hits), 0)
        asleep = [b for b in hits if b.ref_cnt == 0]
        if new + len(asleep) > self.block_pool.get_num_free_blocks():
            return None
        self.block_pool.touch(hits)
        fresh = self.block_pool.get_new_blocks(new)
        if hits:
            table = list(hits) + fresh
        elif old:
            table = old + fresh
        else:
            table = fresh
        self.req_to_blocks[rid] = table
        if self.enable_caching:
            lo = self.num_cached_block.get(rid, len(hits))
            hi = max(lo, min(total + num_new_tokens, request.num_tokens) // size)
            self.block_pool.cache_full_blocks(table[lo:hi], request.block_hashes[lo:hi])
            self.num_cached_block[rid] = hi
        return fresh

    def free(self, request):
        rid = request.request_id
        if rid in self.req_to_blocks:
            self.block_pool.free_blocks(self.req_to_blocks.pop(rid)[::-1])
            self.num_cached_block.pop(rid, None)

    def write(self, request, pos, token):
        table = self.req_to_blocks.get(request.request_id, [])
        k, slot = pos // self.block_size, pos % self.block_size
        if not 0 <= k < len(table):
            raise ValueError("write: position %d" % pos)
        table[k] = b = self.block_pool.fork_block(table[k])
        b.payload[slot] = token
        return b
