# Exercise: block pool
#
# Task 1: block + queue
# Task 2: pool
# Task 3: index
# Task 4: hashes
# Task 5: manager
# Task 6: copy on write


#################### Task 1 ####################

class KVCacheBlock:

    def __init__(self, block_id, block_size=1):
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = None
        self.is_null = False
        self.prev_free = None
        self.next_free = None
        self.payload = []
        for i in range(block_size):
            self.payload.append(0)

    def reset_hash(self):
        self.block_hash = None

    def __str__(self):
        return "KVCacheBlock(" + str(self.block_id) + ")"


class FreeKVCacheBlockQueue:

    def __init__(self, blocks):
        self.fake_free_list_head = KVCacheBlock(-1)
        self.fake_free_list_tail = KVCacheBlock(-1)
        self.fake_free_list_head.next_free = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free = self.fake_free_list_head
        self.num_free_blocks = 0
        for block in blocks:
            self.append(block)

    def is_in_list(self, block):
        if block.prev_free is None:
            return False
        if block.next_free is None:
            return False
        return True

    def popleft(self):
        first = self.fake_free_list_head.next_free
        if first is self.fake_free_list_tail:
            raise ValueError("The queue is empty!")
        second = first.next_free
        self.fake_free_list_head.next_free = second
        second.prev_free = self.fake_free_list_head
        first.prev_free = None
        first.next_free = None
        self.num_free_blocks = self.num_free_blocks - 1
        return first

    def popleft_n(self, n):
        if n > self.num_free_blocks:
            raise ValueError("Not enough free blocks!")
        result = []
        while len(result) < n:
            result.append(self.popleft())
        return result

    def remove(self, block):
        if not self.is_in_list(block):
            raise RuntimeError("Block is not in the queue: " + str(block))
        left = block.prev_free
        right = block.next_free
        left.next_free = right
        right.prev_free = left
        block.prev_free = None
        block.next_free = None
        self.num_free_blocks = self.num_free_blocks - 1

    def append(self, block):
        if self.is_in_list(block):
            raise RuntimeError("Block is already in the queue: " + str(block))
        last = self.fake_free_list_tail.prev_free
        last.next_free = block
        block.prev_free = last
        block.next_free = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free = block
        self.num_free_blocks = self.num_free_blocks + 1

    def append_n(self, blocks):
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self):
        result = []
        current = self.fake_free_list_head.next_free
        while current is not self.fake_free_list_tail:
            result.append(current)
            current = current.next_free
        return result


#################### Tasks 2, 3, 6 ####################

class BlockPool:

    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("num_blocks has to be at least 1")
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.block_size = block_size
        self.blocks = []
        for i in range(num_blocks):
            self.blocks.append(KVCacheBlock(i, block_size))
        # block 0 is special
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self.cached_block_hash_to_block = {}

    def get_new_blocks(self, n):
        if n > self.get_num_free_blocks():
            raise ValueError("Not enough free blocks!")
        new_blocks = []
        for i in range(n):
            block = self.free_block_queue.popleft()
            self._maybe_evict(block)
            block.ref_cnt = 1
            new_blocks.append(block)
        return new_blocks

    def touch(self, blocks):
        for block in blocks:
            if not block.is_null:
                if block.ref_cnt == 0:
                    # somebody wants it again, so take it out of the queue
                    self.free_block_queue.remove(block)
                block.ref_cnt = block.ref_cnt + 1

    def free_blocks(self, blocks):
        real_blocks = []
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                raise ValueError("Double free: " + str(block))
            real_blocks.append(block)
        unused = []
        for block in real_blocks:
            block.ref_cnt = block.ref_cnt - 1
            if block.ref_cnt == 0:
                unused.append(block)
        self.free_block_queue.append_n(unused)

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        if self.num_blocks == 1:
            return 0
        used = self.num_blocks - 1 - self.get_num_free_blocks()
        return used / (self.num_blocks - 1)

    # ----- Task 3 -----

    def cache_full_blocks(self, blocks, hashes):
        if self.enable_caching == False:
            return
        for i in range(len(blocks)):
            block = blocks[i]
            if block.is_null:
                continue
            if block.block_hash is not None:
                continue
            block.block_hash = hashes[i]
            if hashes[i] not in self.cached_block_hash_to_block:
                self.cached_block_hash_to_block[hashes[i]] = {}
            self.cached_block_hash_to_block[hashes[i]][block.block_id] = block

    def get_cached_block(self, block_hash):
        if block_hash not in self.cached_block_hash_to_block:
            return None
        candidates = self.cached_block_hash_to_block[block_hash]
        for block_id in candidates:
            return candidates[block_id]
        return None

    def _maybe_evict(self, block):
        if block.block_hash is None:
            return False
        if block.block_hash not in self.cached_block_hash_to_block:
            return False
        candidates = self.cached_block_hash_to_block[block.block_hash]
        if block.block_id not in candidates:
            return False
        del candidates[block.block_id]
        if len(candidates) == 0:
            del self.cached_block_hash_to_block[block.block_hash]
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        for block_id in block_ids:
            if block_id < 0 or block_id >= self.num_blocks:
                raise ValueError("There is no block " + str(block_id))
        for block_id in block_ids:
            self._maybe_evict(self.blocks[block_id])

    def reset_prefix_cache(self):
        for block in self.blocks:
            if not block.is_null and block.ref_cnt > 0:
                return False
        self.cached_block_hash_to_block = {}
        for block in self.blocks:
            block.reset_hash()
        return True

    # ----- Task 6 -----

    def fork_block(self, block):
        if block.is_null:
            raise ValueError("The null block cannot be forked")
        if block.ref_cnt == 0:
            raise ValueError("Block is not in use: " + str(block))
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        new_block = self.get_new_blocks(1)[0]
        for i in range(self.block_size):
            new_block.payload[i] = block.payload[i]
        block.ref_cnt = block.ref_cnt - 1
        return new_block


#################### Task 4 ####################

def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    return hash((parent_hash, tuple(token_ids), extra_keys))


def extra_keys(request, start, end):
    result = []
    # 1. lora
    if request.lora_name is not None:
        result.append(request.lora_name)
    # 2. images
    for feature in request.mm_features:
        mm_hash = feature[0]
        offset = feature[1]
        length = feature[2]
        if offset < end and offset + length > start:
            result.append((mm_hash, offset - start))
    # 3. salt
    if request.cache_salt is not None:
        if start == 0:
            result.append(request.cache_salt)
    if len(result) == 0:
        return None
    return tuple(result)


class Request:

    def __init__(self, request_id, token_ids, block_size, *, lora_name=None,
                 cache_salt=None, mm_features=(), skip_reading_prefix_cache=False):
        self.request_id = request_id
        self.token_ids = list(token_ids)
        self.num_tokens = len(self.token_ids)
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = list(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens = 0
        self.block_hashes = []
        self.update_hashes()

    def append_token_ids(self, token_ids):
        for token in token_ids:
            self.token_ids.append(token)
        self.num_tokens = len(self.token_ids)
        self.update_hashes()

    def update_hashes(self):
        while True:
            start = len(self.block_hashes) * self.block_size
            end = start + self.block_size
            if end > self.num_tokens:
                break
            if start == 0:
                parent_hash = None
            else:
                parent_hash = self.block_hashes[-1]
            tokens = self.token_ids[start:end]
            keys = extra_keys(self, start, end)
            self.block_hashes.append(hash_block_tokens(parent_hash, tokens, keys))


#################### Task 5 ####################

class KVCacheManager:

    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.req_to_blocks = {}
        self.num_cached_block = {}

    def get_computed_blocks(self, request):
        if not self.enable_caching:
            return ([], 0)
        if request.skip_reading_prefix_cache:
            return ([], 0)
        max_hits = (request.num_tokens - 1) // self.block_size
        blocks = []
        i = 0
        while i < max_hits:
            block = self.block_pool.get_cached_block(request.block_hashes[i])
            if block is None:
                break
            blocks.append(block)
            i = i + 1
        return (blocks, len(blocks) * self.block_size)

    def number_of_blocks(self, num_tokens):
        # round up
        result = num_tokens // self.block_size
        if num_tokens % self.block_size != 0:
            result = result + 1
        return result

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        # 1.
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens has to be at least 1")
        # 2.
        hits = []
        if new_computed_blocks is not None:
            for block in new_computed_blocks:
                hits.append(block)
        table = self.req_to_blocks.get(request.request_id, [])
        held = len(table)
        if len(hits) > 0 and held > 0:
            raise ValueError("Hits are only allowed in the first allocation")
        # 3.
        total = request.num_computed_tokens + len(hits) * self.block_size
        # 4.
        need = self.number_of_blocks(min(total + num_new_tokens, self.max_model_len))
        new = need - held - len(hits)
        if new < 0:
            new = 0
        # 5.
        free_hits = 0
        for block in hits:
            if block.ref_cnt == 0:
                free_hits = free_hits + 1
        if new + free_hits > self.block_pool.get_num_free_blocks():
            return None
        # 6.
        self.block_pool.touch(hits)
        new_blocks = self.block_pool.get_new_blocks(new)
        table = table + hits + new_blocks
        self.req_to_blocks[request.request_id] = table
        # 7.
        if self.enable_caching:
            full = min(total + num_new_tokens, request.num_tokens) // self.block_size
            if request.request_id in self.num_cached_block:
                num_cached = self.num_cached_block[request.request_id]
            else:
                num_cached = len(hits)
            if num_cached < full:
                self.block_pool.cache_full_blocks(table[num_cached:full],
                                                  request.block_hashes[num_cached:full])
                num_cached = full
            self.num_cached_block[request.request_id] = num_cached
        # 8.
        return new_blocks

    def free(self, request):
        if request.request_id not in self.req_to_blocks:
            return
        blocks = self.req_to_blocks[request.request_id]
        blocks_backwards = []
        for block in blocks:
            blocks_backwards.insert(0, block)
        self.block_pool.free_blocks(blocks_backwards)
        del self.req_to_blocks[request.request_id]
        if request.request_id in self.num_cached_block:
            del self.num_cached_block[request.request_id]

    def write(self, request, pos, token):
        table = self.req_to_blocks.get(request.request_id, [])
        held = len(table)
        if pos < 0 or pos >= held * self.block_size:
            raise ValueError("Position is outside of the table: " + str(pos))
        index = pos // self.block_size
        offset = pos % self.block_size
        block = self.block_pool.fork_block(table[index])
        table[index] = block
        block.payload[offset] = token
        return block
