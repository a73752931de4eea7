"""Block pool. Tasks 1, 2, 3 done; rest follows."""


class KVCacheBlock:
    def __init__(self, block_id, block_size=1):
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = None
        self.is_null = False
        self.prev_free = None
        self.next_free = None
        self.payload = [0] * block_size

    def reset_hash(self):
        self.block_hash = None

    def __repr__(self):
        return f"<block {self.block_id} ref={self.ref_cnt}>"


class FreeKVCacheBlockQueue:
    """Doubly linked list of the free blocks, head = next to be taken."""

    def __init__(self, blocks):
        self.num_free_blocks = 0
        self.fake_free_list_head = KVCacheBlock(-1)
        self.fake_free_list_tail = KVCacheBlock(-1)
        self.fake_free_list_head.next_free = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free = self.fake_free_list_head
        for block in blocks:
            self.append(block)

    @staticmethod
    def _linked(block):
        return block.prev_free is not None and block.next_free is not None

    def popleft(self):
        if self.num_free_blocks == 0:
            raise ValueError("no free block")
        block = self.fake_free_list_head.next_free
        self.remove(block)
        return block

    def popleft_n(self, n):
        if n > self.num_free_blocks:
            raise ValueError(f"{n} blocks wanted, {self.num_free_blocks} free")
        taken = []
        for _ in range(n):
            taken.append(self.popleft())
        return taken

    def remove(self, block):
        if not self._linked(block):
            raise RuntimeError(f"{block} is not in the free list")
        before, after = block.prev_free, block.next_free
        before.next_free = after
        after.prev_free = before
        block.prev_free = None
        block.next_free = None
        self.num_free_blocks -= 1

    def append(self, block):
        if self._linked(block):
            raise RuntimeError(f"{block} is in the free list already")
        tail = self.fake_free_list_tail
        last = tail.prev_free
        last.next_free = block
        block.prev_free = last
        block.next_free = tail
        tail.prev_free = block
        self.num_free_blocks += 1

    def append_n(self, blocks):
        blocks = list(blocks)
        for block in blocks:
            if self._linked(block):
                raise RuntimeError(f"{block} is in the free list already")
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self):
        found = []
        block = self.fake_free_list_head.next_free
        while block is not self.fake_free_list_tail:
            found.append(block)
            block = block.next_free
        return found


class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        if num_blocks < 1:
            raise ValueError("a pool needs at least one block")
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.block_size = block_size
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self.cached_block_hash_to_block = {}

    # ---- taking and giving back ------------------------------------------

    def get_new_blocks(self, n):
        if n > self.get_num_free_blocks():
            raise ValueError(f"cannot get {n} blocks")
        taken = self.free_block_queue.popleft_n(n)
        for block in taken:
            self._maybe_evict(block)
            block.ref_cnt = 1
        return taken

    def touch(self, blocks):
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt == 0:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        leaving = [block for block in blocks if not block.is_null]
        for block in leaving:
            if block.ref_cnt == 0:
                raise ValueError(f"double free of {block}")
        for block in leaving:
            block.ref_cnt -= 1
        self.free_block_queue.append_n([b for b in leaving if b.ref_cnt == 0])

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        usable = self.num_blocks - 1
        if usable == 0:
            return 0
        return (usable - self.get_num_free_blocks()) / usable

    # ---- the index -------------------------------------------------------

    def cache_full_blocks(self, blocks, hashes):
        if not self.enable_caching:
            return
        for block, block_hash in zip(blocks, hashes):
            if block.is_null or block.block_hash is not None:
                continue
            block.block_hash = block_hash
            same = self.cached_block_hash_to_block.setdefault(block_hash, {})
            same[block.block_id] = block

    def get_cached_block(self, block_hash):
        same = self.cached_block_hash_to_block.get(block_hash)
        if not same:
            return None
        return next(iter(same.values()))

    def _maybe_evict(self, block):
        if block.block_hash is None:
            return False
        same = self.cached_block_hash_to_block.get(block.block_hash)
        if same is None or same.get(block.block_id) is not block:
            return False
        del same[block.block_id]
        if not same:
            del self.cached_block_hash_to_block[block.block_hash]
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        block_ids = list(block_ids)
        for block_id in block_ids:
            if block_id < 0 or block_id >= self.num_blocks:
                raise ValueError(f"no block {block_id}")
        for block_id in block_ids:
            self._maybe_evict(self.blocks[block_id])

    def reset_prefix_cache(self):
        if self.get_num_free_blocks() != self.num_blocks - 1:
            return False
        self.cached_block_hash_to_block.clear()
        for block in self.blocks:
            block.reset_hash()
        return True

    def fork_block(self, block):
        raise NotImplementedError


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    return hash((parent_hash, tuple(token_ids), extra_keys))


def extra_keys(request, start, end):
    pass    # TODO


class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None,
                 cache_salt=None, mm_features=(),
                 skip_reading_prefix_cache=False):
        self.request_id = request_id
        self.token_ids = list(token_ids)
        self.num_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.block_hashes = []      # TODO

    def append_token_ids(self, token_ids):
        self.token_ids.extend(token_ids)
        self.num_tokens = len(self.token_ids)


class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True,
                 max_model_len=8192):
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.req_to_blocks = {}
        self.num_cached_block = {}

    def get_computed_blocks(self, request):
        return [], 0

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        raise NotImplementedError

    def free(self, request):
        raise NotImplementedError

    def write(self, request, pos, token):
        raise NotImplementedError
