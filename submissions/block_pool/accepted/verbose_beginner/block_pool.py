# Block pool exercise
# I number all the different blocks of text that were ever hashed: the number is the hash.

NUMBER_OF_TEXT = {}     # (parent number, tokens, extra keys) -> number

# ----- blocks -----
class KVCacheBlock:
    def __init__(self, block_id, block_size=1):
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = None
        self.is_null = False
        self.prev_free = None
        self.next_free = None
        self.payload = []
        i = 0
        while i < block_size:
            self.payload.append(0)
            i = i + 1

    def reset_hash(self):
        self.block_hash = None

# ----- small helpers -----
def is_in_a_list(block):
    return block.prev_free is not None and block.next_free is not None

def make_copy_of_list(old_list):
    new_list = []
    for element in old_list:
        new_list.append(element)
    return new_list

def make_reversed_list(old_list):
    new_list = []
    i = len(old_list) - 1
    while i >= 0:
        new_list.append(old_list[i])
        i = i - 1
    return new_list

def copy_payload(source_block, target_block):
    i = 0
    while i < len(source_block.payload):
        target_block.payload[i] = source_block.payload[i]
        i = i + 1

def divide_rounding_up(a, b):
    if a % b == 0:
        return a // b
    return a // b + 1

# ----- the free queue -----
class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        head = KVCacheBlock(-1)
        tail = KVCacheBlock(-1)
        head.next_free = tail
        tail.prev_free = head
        self.fake_free_list_head = head
        self.fake_free_list_tail = tail
        self.num_free_blocks = 0
        for block in blocks:
            self.append(block)

    def popleft(self):
        if self.num_free_blocks == 0:
            raise ValueError("The free queue is empty!")
        first = self.fake_free_list_head.next_free
        self.remove(first)
        return first

    def popleft_n(self, n):
        if n > self.num_free_blocks:
            raise ValueError("There are not so many free blocks!")
        taken = []
        while len(taken) < n:
            taken.append(self.popleft())
        return taken

    def remove(self, block):
        if not is_in_a_list(block):
            raise RuntimeError("This block is not in the free queue!")
        left = block.prev_free
        right = block.next_free
        left.next_free = right
        right.prev_free = left
        block.prev_free = None
        block.next_free = None
        self.num_free_blocks = self.num_free_blocks - 1

    def append(self, block):
        if is_in_a_list(block):
            raise RuntimeError("This block is in the free queue already!")
        tail = self.fake_free_list_tail
        last = tail.prev_free
        last.next_free = block
        block.prev_free = last
        block.next_free = tail
        tail.prev_free = block
        self.num_free_blocks = self.num_free_blocks + 1

    def append_n(self, blocks):
        blocks = make_copy_of_list(blocks)
        for block in blocks:
            if is_in_a_list(block):
                raise RuntimeError("One of the blocks is in the free queue already!")
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self):
        result = []
        block = self.fake_free_list_head.next_free
        while block is not self.fake_free_list_tail:
            result.append(block)
            block = block.next_free
        return result

# ----- the pool -----
class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("The pool must have a block!")
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.block_size = block_size
        self.blocks = []
        for block_id in range(num_blocks):
            self.blocks.append(KVCacheBlock(block_id, block_size))
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self.cached_block_hash_to_block = {}

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        number_of_real_blocks = self.num_blocks - 1
        if number_of_real_blocks == 0:
            return 0.0
        used = number_of_real_blocks - self.get_num_free_blocks()
        return used / number_of_real_blocks

    def get_new_blocks(self, n):
        if n > self.get_num_free_blocks():
            raise ValueError("Not enough free blocks!")
        new_blocks = self.free_block_queue.popleft_n(n)
        for block in new_blocks:
            self._maybe_evict(block)
            block.ref_cnt = 1
        return new_blocks

    def touch(self, blocks):
        for block in blocks:
            if block.is_null == False:
                if block.ref_cnt == 0:
                    self.free_block_queue.remove(block)
                block.ref_cnt = block.ref_cnt + 1

    def free_blocks(self, blocks):
        real_blocks = [block for block in blocks if block.is_null == False]
        for block in real_blocks:
            if block.ref_cnt == 0:
                raise ValueError("This block is free already!")
        blocks_without_users = []
        for block in real_blocks:
            block.ref_cnt = block.ref_cnt - 1
            if block.ref_cnt == 0:
                blocks_without_users.append(block)
        self.free_block_queue.append_n(blocks_without_users)

    def insert_into_index(self, block_hash, block):
        if block_hash not in self.cached_block_hash_to_block:
            self.cached_block_hash_to_block[block_hash] = {}
        blocks_with_this_hash = self.cached_block_hash_to_block[block_hash]
        blocks_with_this_hash[block.block_id] = block

    def is_in_index(self, block_hash, block):
        if block_hash not in self.cached_block_hash_to_block:
            return False
        blocks_with_this_hash = self.cached_block_hash_to_block[block_hash]
        return block.block_id in blocks_with_this_hash

    def delete_from_index(self, block_hash, block):
        blocks_with_this_hash = self.cached_block_hash_to_block[block_hash]
        del blocks_with_this_hash[block.block_id]
        if len(blocks_with_this_hash) == 0:
            del self.cached_block_hash_to_block[block_hash]

    def cache_full_blocks(self, blocks, hashes):
        if self.enable_caching == False:
            return
        i = 0
        while i < len(blocks):
            block = blocks[i]
            block_hash = hashes[i]
            if block.is_null == False and block.block_hash is None:
                block.block_hash = block_hash
                self.insert_into_index(block_hash, block)
            i = i + 1

    def get_cached_block(self, block_hash):
        if block_hash not in self.cached_block_hash_to_block:
            return None
        blocks_with_this_hash = list(self.cached_block_hash_to_block[block_hash].values())
        return blocks_with_this_hash[0]

    def _maybe_evict(self, block):
        if block.block_hash is None:
            return False
        if not self.is_in_index(block.block_hash, block):
            return False
        self.delete_from_index(block.block_hash, block)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        block_ids = make_copy_of_list(block_ids)
        for block_id in block_ids:
            if block_id < 0 or block_id >= self.num_blocks:
                raise ValueError("There is no block with this id!")
        for block_id in block_ids:
            self._maybe_evict(self.blocks[block_id])

    def reset_prefix_cache(self):
        i = 1       # 0 is the null block
        while i < self.num_blocks:
            if self.blocks[i].ref_cnt > 0:
                return False
            i = i + 1
        self.cached_block_hash_to_block = {}
        for block in self.blocks:
            block.reset_hash()
        return True

    def fork_block(self, block):
        if block.is_null == True or block.ref_cnt == 0:
            raise ValueError("This block can not be forked!")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        new_block = self.get_new_blocks(1)[0]
        copy_payload(block, new_block)
        block.ref_cnt = block.ref_cnt - 1
        return new_block

# ----- hashes and requests -----
def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    text = (parent_hash, tuple(token_ids), extra_keys)
    if text not in NUMBER_OF_TEXT:
        NUMBER_OF_TEXT[text] = len(NUMBER_OF_TEXT)
    return NUMBER_OF_TEXT[text]

def item_overlaps(offset, length, start, end):
    return offset < end and offset + length > start

def extra_keys(request, start, end):
    keys = []
    if request.lora_name is not None:
        keys.append(request.lora_name)
    for item in request.mm_features:
        mm_hash = item[0]
        offset = item[1]
        length = item[2]
        if item_overlaps(offset, length, start, end):
            keys.append((mm_hash, offset - start))
    if request.cache_salt is not None:
        if start == 0:
            keys.append(request.cache_salt)
    if len(keys) == 0:
        return None
    return tuple(keys)

class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None, cache_salt=None, mm_features=(),
                 skip_reading_prefix_cache=False):
        self.request_id = request_id
        self.token_ids = make_copy_of_list(token_ids)
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = make_copy_of_list(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.block_hashes = []
        self.compute_missing_hashes()

    def compute_missing_hashes(self):
        number_of_full_blocks = self.num_tokens // self.block_size
        while len(self.block_hashes) < number_of_full_blocks:
            k = len(self.block_hashes)
            start = k * self.block_size
            end = start + self.block_size
            parent_hash = None
            if k > 0:
                parent_hash = self.block_hashes[k - 1]
            keys = extra_keys(self, start, end)
            self.block_hashes.append(hash_block_tokens(parent_hash, self.token_ids[start:end], keys))

    def append_token_ids(self, token_ids):
        for token in token_ids:
            self.token_ids.append(token)
        self.num_tokens = len(self.token_ids)
        self.compute_missing_hashes()

# ----- the manager -----
class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.req_to_blocks = {}
        self.num_cached_block = {}

    def get_table(self, request):
        return self.req_to_blocks.get(request.request_id, [])

    def get_computed_blocks(self, request):
        hits = []
        if self.enable_caching == False or request.skip_reading_prefix_cache == True:
            return hits, 0
        maximum = (request.num_tokens - 1) // self.block_size
        k = 0
        while k < maximum:
            block = self.block_pool.get_cached_block(request.block_hashes[k])
            if block is None:
                break
            hits.append(block)
            k = k + 1
        return hits, len(hits) * self.block_size

    def remember_full_blocks(self, request, number_of_hits, number_of_tokens):
        table = self.get_table(request)
        first = number_of_hits
        if request.request_id in self.num_cached_block and number_of_hits == 0:
            first = self.num_cached_block[request.request_id]
        full = min(number_of_tokens, request.num_tokens) // self.block_size
        blocks = []
        hashes = []
        k = first
        while k < full:
            blocks.append(table[k])
            hashes.append(request.block_hashes[k])
            k = k + 1
        self.block_pool.cache_full_blocks(blocks, hashes)
        self.num_cached_block[request.request_id] = max(first, full)

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        if num_new_tokens < 1:
            raise ValueError("At least one token, please!")
        hits = make_copy_of_list(new_computed_blocks or [])
        held = len(self.get_table(request))
        if len(hits) > 0 and held > 0:
            raise ValueError("This request has blocks, it can not have hits!")

        number_of_tokens = request.num_computed_tokens + len(hits) * self.block_size + num_new_tokens
        need = divide_rounding_up(min(number_of_tokens, self.max_model_len), self.block_size)
        new = need - held - len(hits)
        if new < 0:
            new = 0
        free_hits = 0
        for block in hits:
            if block.ref_cnt == 0:
                free_hits = free_hits + 1
        if new + free_hits > self.block_pool.get_num_free_blocks():
            return None

        table = make_copy_of_list(self.get_table(request))
        self.block_pool.touch(hits)
        new_blocks = self.block_pool.get_new_blocks(new)
        for block in hits + new_blocks:
            table.append(block)
        self.req_to_blocks[request.request_id] = table

        if self.enable_caching == True:
            self.remember_full_blocks(request, len(hits), number_of_tokens)
        return new_blocks

    def free(self, request):
        table = self.get_table(request)
        if len(table) == 0:
            return
        self.block_pool.free_blocks(make_reversed_list(table))
        self.req_to_blocks[request.request_id] = []
        self.num_cached_block[request.request_id] = 0

    def write(self, request, pos, token):
        table = self.get_table(request)
        if pos < 0 or pos >= len(table) * self.block_size:
            raise ValueError("This position is not in the table!")
        k = pos // self.block_size
        block = self.block_pool.fork_block(table[k])
        table[k] = block
        block.payload[pos % self.block_size] = token
        return block
