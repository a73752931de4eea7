from fractions import Fraction


class HybridKVCacheManager:
    def __init__(self, block_pool, groups, enable_caching=True):
        self.block_pool, self.groups, self.req_to_blocks = block_pool, groups, {}
    def get_computed_blocks(self, request): return tuple([] for _ in self.groups), 0
    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0): return tuple([] for _ in self.groups)
    def free(self, request): pass
class LcmAllocator:
    def __init__(self, page_bytes, budget):
        self.large_page_bytes = self.num_large_pages = 0
        self.ratio, self.free_large_pages, self.owner, self.slots = {t: 1 for t in page_bytes}, [], {}, {t: {} for t in page_bytes}
    def alloc(self, request_id, page_type): return None
    def free(self, page_type, small_id): pass
    def release(self, page_type, small_id, last_access, prefix_length): pass
    def reuse(self, page_type, small_id): pass
    def remove_request(self, request_id): pass
    def byte_offset(self, page_type, small_id): return 0
def fit(policy, budget, page_bytes, requests, weights=None): return (0, 0, 0)
def unify_page_size(layers): return layers
def get_kv_cache_groups(layers): return [[n for n, _ in layers]]
def get_kv_cache_config(layers, available, num_gpu_blocks_override=None): return {}
def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    return Fraction(0)
