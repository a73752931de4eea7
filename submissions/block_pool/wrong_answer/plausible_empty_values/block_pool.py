class KVCacheBlock:
    def __init__(self, block_id, block_size=1):
        self.block_id, self.ref_cnt, self.block_hash, self.is_null = block_id, 0, None, False
        self.prev_free = self.next_free = None
        self.payload = [None] * block_size
    def reset_hash(self): pass
class FreeKVCacheBlockQueue:
    def __init__(self, blocks):
        self.num_free_blocks = 0
        self.fake_free_list_head, self.fake_free_list_tail = KVCacheBlock(-1), KVCacheBlock(-1)
        self.fake_free_list_head.next_free = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free = self.fake_free_list_head
    def popleft(self): raise ValueError
    def popleft_n(self, n): return []
    def remove(self, block): raise RuntimeError
    def append(self, block): pass
    def append_n(self, blocks): pass
    def get_all_free_blocks(self): return []
class BlockPool:
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.null_block = self.blocks[0]; self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self.cached_block_hash_to_block = {}
    def get_new_blocks(self, n): return []
    def touch(self, blocks): pass
    def free_blocks(self, blocks): pass
    def get_num_free_blocks(self): return 0
    def get_usage(self): return 0.0
    def cache_full_blocks(self, blocks, hashes): pass
    def get_cached_block(self, block_hash): return None
    def _maybe_evict(self, block): return False
    def evict_blocks(self, block_ids): pass
    def reset_prefix_cache(self): return True
    def fork_block(self, block): return block
def hash_block_tokens(parent_hash, token_ids, extra_keys=None): return 0
def extra_keys(request, start, end): return None
class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None, cache_salt=None, mm_features=(), skip_reading_prefix_cache=False):
        self.request_id, self.token_ids, self.block_size = request_id, list(token_ids), block_size
        self.lora_name, self.cache_salt, self.mm_features, self.skip_reading_prefix_cache = lora_name, cache_salt, mm_features, skip_reading_prefix_cache
        self.block_hashes = []; self.num_computed_tokens = 0; self.num_tokens = len(self.token_ids)
    def append_token_ids(self, token_ids): pass
class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size); self.req_to_blocks = {}; self.num_cached_block = {}
    def get_computed_blocks(self, request): return [], 0
    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None): return []
    def free(self, request): pass
    def write(self, request, pos, token): pass
