from functools import cache
from itertools import chain, islice, repeat, takewhile


class KVCacheBlock:
    def __init__(self, block_id, block_size=1):
        self.block_id, self.ref_cnt, self.block_hash, self.is_null = block_id, 0, None, False
        self.prev_free = self.next_free = None
        self.payload = list(repeat(0, block_size))

    def reset_hash(self):
        self.block_hash = None


def link(*nodes):
    for a, b in zip(nodes, nodes[1:]):
        a.next_free, b.prev_free = b, a


def in_list(block):
    return None not in (block.prev_free, block.next_free)


def follow(node, stop):
    while (node := node.next_free) is not stop:
        yield node


class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        blocks = tuple(blocks)
        self.num_free_blocks = len(blocks)
        self.fake_free_list_head, self.fake_free_list_tail = map(KVCacheBlock, (-1, -1))
        link(self.fake_free_list_head, *blocks, self.fake_free_list_tail)

    def get_all_free_blocks(self):
        return [*follow(self.fake_free_list_head, self.fake_free_list_tail)]

    def popleft(self):
        return self.popleft_n(1)[0]

    def popleft_n(self, n):
        if n > self.num_free_blocks:
            raise ValueError(f"{n} > {self.num_free_blocks}")
        taken = [*islice(follow(self.fake_free_list_head, self.fake_free_list_tail), n)]
        if taken:
            link(self.fake_free_list_head, taken[-1].next_free)
        for block in taken:
            block.prev_free = block.next_free = None
        self.num_free_blocks -= n
        return taken

    def remove(self, block):
        if not in_list(block):
            raise RuntimeError("not in the list")
        link(block.prev_free, block.next_free)
        block.prev_free = block.next_free = None
        self.num_free_blocks -= 1

    def append(self, block):
        self.append_n((block,))

    def append_n(self, blocks):
        blocks = tuple(blocks)
        if any(map(in_list, blocks)):
            raise RuntimeError("in the list already")
        link(self.fake_free_list_tail.prev_free, *blocks, self.fake_free_list_tail)
        self.num_free_blocks += len(blocks)


class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("no blocks")
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self.cached_block_hash_to_block = {}

    get_num_free_blocks = lambda self: self.free_block_queue.num_free_blocks

    def get_usage(self):
        n = len(self.blocks) - 1
        return n and (n - self.get_num_free_blocks()) / n

    def get_new_blocks(self, n):
        new = self.free_block_queue.popleft_n(n)
        for b in new:
            b.ref_cnt = 1
            self._maybe_evict(b)
        return new

    def touch(self, blocks):
        for b in blocks:
            if b.is_null:
                continue
            b.ref_cnt or self.free_block_queue.remove(b)
            b.ref_cnt += 1

    def free_blocks(self, blocks):
        real = [b for b in blocks if not b.is_null]
        if any(b.ref_cnt == 0 for b in real):
            raise ValueError("double free")
        for b in real:
            b.ref_cnt -= 1
        self.free_block_queue.append_n(b for b in real if not b.ref_cnt)

    def cache_full_blocks(self, blocks, hashes):
        for b, h in zip(blocks, hashes) if self.enable_caching else ():
            if not b.is_null and b.block_hash is None:
                b.block_hash = h
                self.cached_block_hash_to_block.setdefault(h, {})[b.block_id] = b

    def get_cached_block(self, block_hash):
        return next(iter(self.cached_block_hash_to_block.get(block_hash, {}).values()), None)

    def _maybe_evict(self, block):
        h, index = block.block_hash, self.cached_block_hash_to_block
        if h is None or block.block_id not in index.get(h, ()):
            return False
        index[h].pop(block.block_id)
        index[h] or index.pop(h)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        ids = tuple(block_ids)
        if not all(0 <= i < len(self.blocks) for i in ids):
            raise ValueError("bad block id")
        for i in ids:
            self._maybe_evict(self.blocks[i])

    def reset_prefix_cache(self):
        if any(b.ref_cnt for b in self.blocks[1:]):
            return False
        self.cached_block_hash_to_block.clear()
        for b in self.blocks:
            b.reset_hash()
        return True

    def fork_block(self, block):
        if block.is_null or not block.ref_cnt:
            raise ValueError("nobody uses this block")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        [new] = self.get_new_blocks(1)
        new.payload[:] = block.payload
        block.ref_cnt -= 1
        return new


@cache
def _triple(*key):          # equal triples are one object, so comparing two chains does not walk them
    return key


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    return _triple(tuple(token_ids), extra_keys, parent_hash)


def extra_keys(request, start, end):
    return tuple(chain(
        (name for name in (request.lora_name,) if name is not None),
        ((h, off - start) for h, off, length in request.mm_features if off < end and off + length > start),
        (salt for salt in (request.cache_salt,) if salt is not None and start == 0))) or None


class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None, cache_salt=None, mm_features=(),
                 skip_reading_prefix_cache=False):
        self.request_id, self.block_size = request_id, block_size
        self.lora_name, self.cache_salt, self.mm_features = lora_name, cache_salt, tuple(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens, self.tokens, self.block_hashes = 0, [], []
        self.append_token_ids(token_ids)

    num_tokens = property(lambda self: len(self.tokens))

    def append_token_ids(self, token_ids):
        self.tokens += token_ids
        size = self.block_size
        for i in range(len(self.block_hashes) * size, self.num_tokens - size + 1, size):
            parent = next(reversed(self.block_hashes), None)
            self.block_hashes.append(
                hash_block_tokens(parent, self.tokens[i:i + size], extra_keys(self, i, i + size)))


class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.block_size, self.caching, self.max_model_len = block_size, enable_caching, max_model_len
        self.req_to_blocks, self.num_cached_block = {}, {}

    def get_computed_blocks(self, request):
        if request.skip_reading_prefix_cache or not self.caching:
            return [], 0
        hashes = islice(request.block_hashes, (request.num_tokens - 1) // self.block_size)
        hits = [*takewhile(lambda b: b is not None, map(self.block_pool.get_cached_block, hashes))]
        return hits, len(hits) * self.block_size

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        pool, size, rid, hits = self.block_pool, self.block_size, request.request_id, new_computed_blocks or []
        table = self.req_to_blocks.get(rid, [])
        if num_new_tokens < 1 or hits and table:
            raise ValueError("bad allocation")
        end = request.num_computed_tokens + len(hits) * size + num_new_tokens
        new = max(-(-min(end, self.max_model_len) // size) - len(table) - len(hits), 0)
        if new + sum(not b.ref_cnt for b in hits) > pool.get_num_free_blocks():
            return None
        pool.touch(hits)
        got = pool.get_new_blocks(new)
        self.req_to_blocks[rid] = table = [*table, *hits, *got]
        if self.caching:
            done, full = self.num_cached_block.get(rid, len(hits)), min(end, request.num_tokens) // size
            pool.cache_full_blocks(table[done:full], request.block_hashes[done:full])
            self.num_cached_block[rid] = max(done, full)
        return got

    def free(self, request):
        self.block_pool.free_blocks(reversed(self.req_to_blocks.get(request.request_id, ())))
        for d in (self.req_to_blocks, self.num_cached_block):
            d.pop(request.request_id, None)

    def write(self, request, pos, token):
        table, (k, i) = self.req_to_blocks.get(request.request_id, []), divmod(pos, self.block_size)
        if k not in range(len(table)):
            raise ValueError("position outside the table")
        table[k] = self.block_pool.fork_block(table[k])
        table[k].payload[i] = token
        return table[k]
