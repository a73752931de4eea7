"""Block pool. What can be computed is not stored: most of the public attributes are properties that are
built from a few inner structures each time somebody looks at them."""

import hashlib
from math import ceil


class KVCacheBlock:
    def __init__(self, block_id, block_size=1):
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = None
        self.is_null = False
        self.prev_free = None
        self.next_free = None
        self._memory = [0] * block_size

    @property
    def payload(self):
        return self._memory             # the memory itself, not a copy

    @property
    def queued(self):
        return self.prev_free is not None and self.next_free is not None

    def reset_hash(self):
        self.block_hash = None


class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        self._ends = KVCacheBlock(-1), KVCacheBlock(-1)
        head, tail = self._ends
        self._tie(head, tail)
        for block in blocks:
            self._tie(tail.prev_free, block)
            self._tie(block, tail)

    @staticmethod
    def _tie(left, right):
        left.next_free = right
        right.prev_free = left

    @property
    def fake_free_list_head(self):
        return self._ends[0]

    @property
    def fake_free_list_tail(self):
        return self._ends[1]

    @property
    def num_free_blocks(self):
        return sum(1 for _ in self._walk())

    def _walk(self):
        block = self.fake_free_list_head.next_free
        while block is not self.fake_free_list_tail:
            yield block
            block = block.next_free

    def get_all_free_blocks(self):
        return list(self._walk())

    def remove(self, block):
        if not block.queued:
            raise RuntimeError("block %d is not in the queue" % block.block_id)
        self._tie(block.prev_free, block.next_free)
        block.prev_free = block.next_free = None

    def popleft(self):
        return self.popleft_n(1)[0]

    def popleft_n(self, n):
        everything = self.get_all_free_blocks()
        if n > len(everything):
            raise ValueError("only %d free blocks" % len(everything))
        first = everything[:n]
        for block in first:
            self.remove(block)
        return first

    def append(self, block):
        self.append_n([block])

    def append_n(self, blocks):
        blocks = list(blocks)
        for block in blocks:
            if block.queued:
                raise RuntimeError("block %d is in the queue already" % block.block_id)
        for block in blocks:
            self._tie(self.fake_free_list_tail.prev_free, block)
            self._tie(block, self.fake_free_list_tail)


class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("num_blocks is %d" % num_blocks)
        self._blocks = tuple(KVCacheBlock(number, block_size) for number in range(num_blocks))
        self._blocks[0].is_null = True
        self._caching = enable_caching
        self._cached = {}               # (hash, block id) -> block, in order of insertion
        self.free_block_queue = FreeKVCacheBlockQueue(self._blocks[1:])

    @property
    def blocks(self):
        return list(self._blocks)

    @property
    def null_block(self):
        return self._blocks[0]

    @property
    def _real_blocks(self):
        return self._blocks[1:]

    @property
    def enable_caching(self):
        return self._caching

    @property
    def cached_block_hash_to_block(self):
        index = {}
        for (block_hash, block_id), block in self._cached.items():
            index.setdefault(block_hash, {})[block_id] = block
        return index

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        everything = len(self._real_blocks)
        if everything == 0:
            return 0
        return (everything - self.get_num_free_blocks()) / everything

    def get_new_blocks(self, n):
        if n > self.get_num_free_blocks():
            raise ValueError("not enough free blocks for %d" % n)
        result = []
        while len(result) < n:
            block = self.free_block_queue.popleft()
            self._maybe_evict(block)
            block.ref_cnt = 1
            result.append(block)
        return result

    def touch(self, blocks):
        for block in blocks:
            if not block.is_null:
                if block.ref_cnt == 0:
                    self.free_block_queue.remove(block)
                block.ref_cnt = block.ref_cnt + 1

    def free_blocks(self, blocks):
        counted = [block for block in blocks if not block.is_null]
        if 0 in [block.ref_cnt for block in counted]:
            raise ValueError("a block was freed twice")
        for block in counted:
            block.ref_cnt = block.ref_cnt - 1
        self.free_block_queue.append_n(block for block in counted if block.ref_cnt == 0)

    def cache_full_blocks(self, blocks, hashes):
        if self._caching:
            for block, block_hash in zip(blocks, hashes):
                if block.is_null or block.block_hash is not None:
                    continue
                block.block_hash = block_hash
                self._cached[block_hash, block.block_id] = block

    def get_cached_block(self, block_hash):
        for (other_hash, _), block in self._cached.items():
            if other_hash == block_hash:
                return block
        return None

    def _maybe_evict(self, block):
        key = block.block_hash, block.block_id
        if block.block_hash is None or key not in self._cached:
            return False
        del self._cached[key]
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        wanted = list(block_ids)
        valid = range(len(self._blocks))
        for block_id in wanted:
            if block_id not in valid:
                raise ValueError("no block has the id %r" % block_id)
        for block_id in wanted:
            self._maybe_evict(self._blocks[block_id])

    def reset_prefix_cache(self):
        if any(block.ref_cnt != 0 for block in self._real_blocks):
            return False
        self._cached = {}
        for block in self._real_blocks:
            block.reset_hash()
        return True

    def fork_block(self, block):
        if block.is_null or block.ref_cnt == 0:
            raise ValueError("block %d cannot be forked" % block.block_id)
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        target = self.get_new_blocks(1)[0]
        for position, token in enumerate(block.payload):
            target.payload[position] = token
        block.ref_cnt = block.ref_cnt - 1
        return target


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    digest = hashlib.sha256()
    for part in (parent_hash, list(token_ids), extra_keys):
        data = repr(part).encode("utf-8", "backslashreplace")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def extra_keys(request, start, end):
    keys = []
    if request.lora_name is not None:
        keys.append(request.lora_name)
    keys.extend((mm_hash, offset - start) for mm_hash, offset, length in request.mm_features
                if offset < end and offset + length > start)
    if request.cache_salt is not None and start == 0:
        keys.append(request.cache_salt)
    return tuple(keys) if keys else None


class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None, cache_salt=None, mm_features=(),
                 skip_reading_prefix_cache=False):
        self.request_id = request_id
        self.num_computed_tokens = 0
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = tuple(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self._block_size = block_size
        self._tokens = tuple(token_ids)

    @property
    def num_tokens(self):
        return len(self._tokens)

    @property
    def block_hashes(self):
        hashes = []
        parent = None
        for end in range(self._block_size, self.num_tokens + 1, self._block_size):
            start = end - self._block_size
            parent = hash_block_tokens(parent, self._tokens[start:end], extra_keys(self, start, end))
            hashes.append(parent)
        return hashes

    def append_token_ids(self, token_ids):
        self._tokens = self._tokens + tuple(token_ids)


class KVCacheManager:
    """The page table of all requests is one flat dict: (request id, number in the table) -> block id."""

    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self._block_size = block_size
        self._max_model_len = max_model_len
        self._pages = {}
        self._done = {}                 # (request id, number in the table) -> True: cached or hit

    @property
    def req_to_blocks(self):
        tables = {}
        for (request_id, _), block_id in self._pages.items():       # numbers of one request are in order
            tables.setdefault(request_id, []).append(self.block_pool.blocks[block_id])
        return tables

    @property
    def num_cached_block(self):
        counters = {}
        for request_id, _ in self._done:
            counters[request_id] = counters.get(request_id, 0) + 1
        return counters

    def _table(self, request):
        return self.req_to_blocks.get(request.request_id, [])

    def get_computed_blocks(self, request):
        blocks = []
        if self.block_pool.enable_caching and not request.skip_reading_prefix_cache:
            at_most = (request.num_tokens - 1) // self._block_size
            for block_hash in request.block_hashes[:at_most]:
                block = self.block_pool.get_cached_block(block_hash)
                if block is None:
                    break
                blocks.append(block)
        return blocks, len(blocks) * self._block_size

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens is %d" % num_new_tokens)
        hits = list(new_computed_blocks or [])
        held = len(self._table(request))
        if hits and held > 0:
            raise ValueError("request %s has blocks already" % request.request_id)

        total = request.num_computed_tokens + len(hits) * self._block_size
        need = ceil(min(total + num_new_tokens, self._max_model_len) / self._block_size)
        new = max(need - held - len(hits), 0)
        from_queue = new + len([block for block in hits if block.ref_cnt == 0])
        if from_queue > self.block_pool.get_num_free_blocks():
            return None

        self.block_pool.touch(hits)
        new_blocks = self.block_pool.get_new_blocks(new)
        for number, block in enumerate(hits + new_blocks, held):
            self._pages[request.request_id, number] = block.block_id

        if self.block_pool.enable_caching:
            for number in range(len(hits)):
                self._done[request.request_id, number] = True
            first = self.num_cached_block.get(request.request_id, 0)
            full = min(total + num_new_tokens, request.num_tokens) // self._block_size
            self.block_pool.cache_full_blocks(self._table(request)[first:full], request.block_hashes[first:full])
            for number in range(first, full):
                self._done[request.request_id, number] = True
        return new_blocks

    def free(self, request):
        self.block_pool.free_blocks(reversed(self._table(request)))
        self._pages = {key: value for key, value in self._pages.items() if key[0] != request.request_id}
        self._done = {key: value for key, value in self._done.items() if key[0] != request.request_id}

    def write(self, request, pos, token):
        table = self._table(request)
        if pos < 0 or pos >= len(table) * self._block_size:
            raise ValueError("no slot for position %d" % pos)
        number = pos // self._block_size
        block = self.block_pool.fork_block(table[number])
        self._pages[request.request_id, number] = block.block_id
        block.payload[pos % self._block_size] = token
        return block
