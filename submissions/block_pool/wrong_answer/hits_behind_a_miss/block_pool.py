"""A prefix-caching KV-cache memory manager."""


class KVCacheBlock:
    """One block of `block_size` tokens (Task 1)."""

    def __init__(self, block_id, block_size=1):
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = None
        self.is_null = False
        self.prev_free = None
        self.next_free = None
        self.payload = [0] * block_size

    def reset_hash(self):
        """Set `block_hash` to None."""
        self.block_hash = None


class FreeKVCacheBlockQueue:
    """The free blocks, a doubly linked list (Task 1)."""

    def __init__(self, blocks):
        # two dummies, so that no method has to care about the ends
        self.fake_free_list_head = KVCacheBlock(-1)
        self.fake_free_list_tail = KVCacheBlock(-1)
        self.fake_free_list_head.next_free = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free = self.fake_free_list_head
        self.num_free_blocks = 0
        self.inside = set()
        self.append_n(blocks)

    def popleft(self):
        """Take the first block out and return it."""
        if self.num_free_blocks == 0:
            raise ValueError("no free blocks")
        first = self.fake_free_list_head.next_free
        self.remove(first)
        return first

    def popleft_n(self, n):
        """Take the first `n` blocks out and return them in order."""
        if n > self.num_free_blocks:
            raise ValueError("not enough free blocks")
        result = []
        for _ in range(n):
            result.append(self.popleft())
        return result

    def remove(self, block):
        """Take a block out, wherever it is."""
        if id(block) not in self.inside:
            raise RuntimeError("block is not in the queue")
        before = block.prev_free
        after = block.next_free
        before.next_free = after
        after.prev_free = before
        block.prev_free = None
        block.next_free = None
        self.inside.remove(id(block))
        self.num_free_blocks -= 1

    def append(self, block):
        """Put a block at the tail."""
        if id(block) in self.inside:
            raise RuntimeError("block is already in the queue")
        last = self.fake_free_list_tail.prev_free
        last.next_free = block
        block.prev_free = last
        block.next_free = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free = block
        self.inside.add(id(block))
        self.num_free_blocks += 1

    def append_n(self, blocks):
        """Put blocks at the tail, in order."""
        blocks = list(blocks)
        for block in blocks:
            if id(block) in self.inside:
                raise RuntimeError("block is already in the queue")
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self):
        """Return a new list of the blocks from head to tail."""
        result = []
        block = self.fake_free_list_head.next_free
        while block is not self.fake_free_list_tail:
            result.append(block)
            block = block.next_free
        return result


class BlockPool:
    """All blocks, their reference counts, and the index of cached blocks (Tasks 2, 3 and 6)."""

    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("a pool needs at least one block")
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.block_size = block_size
        self.blocks = []
        for i in range(num_blocks):
            self.blocks.append(KVCacheBlock(i, block_size))
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        # hash -> {block_id -> block}
        self.cached_block_hash_to_block = {}

    def get_new_blocks(self, n):
        """Take blocks from the head of the queue."""
        if n > self.get_num_free_blocks():
            raise ValueError("not enough free blocks")
        new_blocks = self.free_block_queue.popleft_n(n)
        for block in new_blocks:
            self._maybe_evict(block)
            block.ref_cnt = 1
        return new_blocks

    def touch(self, blocks):
        """Count one more user of each block."""
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        """Count one user less of each block."""
        blocks = list(blocks)
        # look first ...
        for block in blocks:
            if not block.is_null and block.ref_cnt < 1:
                raise ValueError("block has no user")
        # ... and change afterwards
        now_free = []
        for block in blocks:
            if block.is_null:
                continue
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                now_free.append(block)
        self.free_block_queue.append_n(now_free)

    def get_num_free_blocks(self):
        """Return the number of blocks in the queue."""
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        """Return the share of blocks in use."""
        usable = self.num_blocks - 1
        if usable == 0:
            return 0.0
        return (usable - self.get_num_free_blocks()) / usable

    def cache_full_blocks(self, blocks, hashes):
        """Give blocks their hashes and put them in the index."""
        if not self.enable_caching:
            return
        for block, block_hash in zip(blocks, hashes):
            if block.is_null or block.block_hash is not None:
                continue
            block.block_hash = block_hash
            if block_hash not in self.cached_block_hash_to_block:
                self.cached_block_hash_to_block[block_hash] = {}
            self.cached_block_hash_to_block[block_hash][block.block_id] = block

    def get_cached_block(self, block_hash):
        """Return the block with this hash that was inserted first, or None."""
        entry = self.cached_block_hash_to_block.get(block_hash)
        if entry is None:
            return None
        for block in entry.values():
            return block

    def _maybe_evict(self, block):
        """Take a block out of the index, and its hash away."""
        if block.block_hash is None:
            return False
        entry = self.cached_block_hash_to_block.get(block.block_hash)
        if entry is None:
            return False
        if entry.get(block.block_id) is not block:
            return False
        del entry[block.block_id]
        if len(entry) == 0:
            del self.cached_block_hash_to_block[block.block_hash]
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        """Evict blocks by their ids."""
        block_ids = list(block_ids)
        for block_id in block_ids:
            if block_id < 0 or block_id >= self.num_blocks:
                raise ValueError("no such block")
        for block_id in block_ids:
            self._maybe_evict(self.blocks[block_id])

    def reset_prefix_cache(self):
        """Forget all hashes, unless a block is in use."""
        for block in self.blocks:
            if not block.is_null and block.ref_cnt > 0:
                return False
        self.cached_block_hash_to_block.clear()
        for block in self.blocks:
            block.reset_hash()
        return True

    def fork_block(self, block):
        """Return a block to which one user of `block` may write."""
        if block.is_null:
            raise ValueError("the null block cannot be written")
        if block.ref_cnt < 1:
            raise ValueError("block has no user")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        copy = self.get_new_blocks(1)[0]
        for i in range(len(block.payload)):
            copy.payload[i] = block.payload[i]
        block.ref_cnt -= 1
        return copy


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    """Return the hash of a block (Task 4)."""
    return hash((parent_hash, tuple(token_ids), extra_keys))


def extra_keys(request, start, end):
    """Return what besides its tokens decides the contents of a block (Task 4)."""
    keys = []
    if request.lora_name is not None:
        keys.append(request.lora_name)
    for mm_hash, offset, length in request.mm_features:
        if offset < end and offset + length > start:
            keys.append((mm_hash, offset - start))
    if request.cache_salt is not None and start == 0:
        keys.append(request.cache_salt)
    if len(keys) == 0:
        return None
    return tuple(keys)


class Request:
    """A request with its tokens and the hashes of its full blocks (Task 4)."""

    def __init__(
        self,
        request_id,
        token_ids,
        block_size,
        *,
        lora_name=None,
        cache_salt=None,
        mm_features=(),
        skip_reading_prefix_cache=False,
    ):
        self.request_id = request_id
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = list(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens = 0
        self.token_ids = []
        self.num_tokens = 0
        self.block_hashes = []
        self.append_token_ids(token_ids)

    def append_token_ids(self, token_ids):
        """Add tokens, and the hashes of blocks that become full."""
        for token in token_ids:
            self.token_ids.append(token)
            self.num_tokens += 1
            if self.num_tokens % self.block_size == 0:
                self.hash_last_block()

    def hash_last_block(self):
        end = self.num_tokens
        start = end - self.block_size
        parent = None
        if len(self.block_hashes) > 0:
            parent = self.block_hashes[-1]
        keys = extra_keys(self, start, end)
        self.block_hashes.append(hash_block_tokens(parent, self.token_ids[start:end], keys))


class KVCacheManager:
    """Gives each request a table of blocks (Tasks 5 and 6)."""

    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.req_to_blocks = {}
        self.num_cached_block = {}

    def get_computed_blocks(self, request):
        """Return the cached blocks at the front of a request, and their number of tokens."""
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        # the last token has to be computed in any case
        max_hits = (request.num_tokens - 1) // self.block_size
        hits = []
        for block_hash in request.block_hashes[:max_hits]:
            block = self.block_pool.get_cached_block(block_hash)
            if block is not None:
                hits.append(block)
        return hits, len(hits) * self.block_size

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        """Make room for tokens; return the new blocks, or None."""
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens must be at least 1")
        hits = list(new_computed_blocks or [])
        req_id = request.request_id
        held = len(self.req_to_blocks.get(req_id, []))
        if hits and held != 0:
            raise ValueError("hits belong to a first allocation")

        total = request.num_computed_tokens + len(hits) * self.block_size
        slots = min(total + num_new_tokens, self.max_model_len)
        need = (slots + self.block_size - 1) // self.block_size
        new = max(need - held - len(hits), 0)

        # hits that nobody uses leave the queue, too
        free_hits = 0
        for block in hits:
            if block.ref_cnt == 0:
                free_hits += 1
        if new + free_hits > self.block_pool.get_num_free_blocks():
            return None

        table = self.req_to_blocks.setdefault(req_id, [])
        self.block_pool.touch(hits)
        table.extend(hits)
        new_blocks = self.block_pool.get_new_blocks(new)
        table.extend(new_blocks)

        if self.enable_caching:
            cached = self.num_cached_block.get(req_id, len(hits))
            full = min(total + num_new_tokens, request.num_tokens) // self.block_size
            self.block_pool.cache_full_blocks(table[cached:full], request.block_hashes[cached:full])
            self.num_cached_block[req_id] = max(cached, full)
        return new_blocks

    def free(self, request):
        """Free the blocks of a request, the last first."""
        table = self.req_to_blocks.get(request.request_id, [])
        self.block_pool.free_blocks(table[::-1])
        self.req_to_blocks.pop(request.request_id, None)
        self.num_cached_block.pop(request.request_id, None)

    def write(self, request, pos, token):
        """Store a token where only this request sees it."""
        table = self.req_to_blocks.get(request.request_id, [])
        if pos < 0 or pos >= len(table) * self.block_size:
            raise ValueError("position outside the blocks of the request")
        index = pos // self.block_size
        block = self.block_pool.fork_block(table[index])
        table[index] = block
        block.payload[pos % self.block_size] = token
        return block
