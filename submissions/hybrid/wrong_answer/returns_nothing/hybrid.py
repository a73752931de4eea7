"""A hybrid memory allocator: fill in the bodies, part by part. Names are fixed."""

class HybridKVCacheManager:
    """Gives a request one block table for each group of layers, all from one pool (Part 1)."""

    def __init__(self, block_pool, groups, enable_caching=True):
        self.req_to_blocks = {}

    def get_computed_blocks(self, request):
        """Return (hits, tokens): the longest prefix that need not be computed again."""

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_new_computed_tokens=0):
        """Make room for more tokens; return the new blocks of each group, or None."""

    def free(self, request):
        """Give back all blocks of a request."""


class LcmAllocator:
    """Cuts large pages into slots of several types (Part 2)."""

    def __init__(self, page_bytes, budget):
        self.large_page_bytes = self.num_large_pages = 0
        self.ratio, self.free_large_pages, self.owner, self.slots = {}, [], {}, {}

    def alloc(self, request_id, page_type):
        """Return the id of a slot that is used from now on, or None."""

    def free(self, page_type, small_id):
        """A used slot becomes empty."""

    def release(self, page_type, small_id, last_access, prefix_length):
        """A used slot only caches from now on."""

    def reuse(self, page_type, small_id):
        """A slot that only caches is used again."""

    def remove_request(self, request_id):
        """The large pages of a request have no owner any more."""

    def byte_offset(self, page_type, small_id):
        """Return the byte at which a slot starts."""


def fit(policy, budget, page_bytes, requests, weights=None):
    """Return (admitted, needed, entries) for a way to share the memory (Part 2)."""


def unify_page_size(layers):
    """Return the layers with pages of one size (Part 3)."""


def get_kv_cache_groups(layers):
    """Return the names of the layers of each group (Part 3)."""


def get_kv_cache_config(layers, available, num_gpu_blocks_override=None):
    """Return groups, blocks and tensors as a dict (Part 3)."""


def uniform_waste(layers, num_tokens, num_encoder_tokens=0):
    """Return the share of memory that is wasted, as a Fraction (Part 3)."""
