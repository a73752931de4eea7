"""A prefix-caching KV-cache memory manager: fill in the bodies, task by task. Names and signatures are fixed."""


class KVCacheBlock:
    """One block of `block_size` tokens (Task 1)."""

    def __init__(self, block_id, block_size=1):
        pass

    def reset_hash(self):
        """Set `block_hash` to None."""


class FreeKVCacheBlockQueue:
    """The free blocks, a doubly linked list (Task 1)."""

    def __init__(self, blocks):
        pass

    def popleft(self):
        """Take the first block out and return it."""

    def popleft_n(self, n):
        """Take the first `n` blocks out and return them in order."""

    def remove(self, block):
        """Take a block out, wherever it is."""

    def append(self, block):
        """Put a block at the tail."""

    def append_n(self, blocks):
        """Put blocks at the tail, in order."""

    def get_all_free_blocks(self):
        """Return a new list of the blocks from head to tail."""


class BlockPool:
    """All blocks, their reference counts, and the index of cached blocks (Tasks 2, 3 and 6)."""

    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        pass

    def get_new_blocks(self, n):
        """Take blocks from the head of the queue."""

    def touch(self, blocks):
        """Count one more user of each block."""

    def free_blocks(self, blocks):
        """Count one user less of each block."""

    def get_num_free_blocks(self):
        """Return the number of blocks in the queue."""

    def get_usage(self):
        """Return the share of blocks in use."""

    def cache_full_blocks(self, blocks, hashes):
        """Give blocks their hashes and put them in the index."""

    def get_cached_block(self, block_hash):
        """Return the block with this hash that was inserted first, or None."""

    def _maybe_evict(self, block):
        """Take a block out of the index, and its hash away."""

    def evict_blocks(self, block_ids):
        """Evict blocks by their ids."""

    def reset_prefix_cache(self):
        """Forget all hashes, unless a block is in use."""

    def fork_block(self, block):
        """Return a block to which one user of `block` may write."""


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    """Return the hash of a block (Task 4)."""


def extra_keys(request, start, end):
    """Return what besides its tokens decides the contents of a block (Task 4)."""


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
        pass

    def append_token_ids(self, token_ids):
        """Add tokens, and the hashes of blocks that become full."""


class KVCacheManager:
    """Gives each request a table of blocks (Tasks 5 and 6)."""

    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        pass

    def get_computed_blocks(self, request):
        """Return the cached blocks at the front of a request, and their number of tokens."""

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        """Make room for tokens; return the new blocks, or None."""

    def free(self, request):
        """Free the blocks of a request, the last first."""

    def write(self, request, pos, token):
        """Store a token where only this request sees it."""
