"""The block manager over which you schedule, and the requests that you are given. Use what the handout names.

Block 0 is the null block and is never handed out. A full block is found again by its tokens and all tokens before it,
from the moment there is room for all of them until it is handed out to somebody else.
"""


class Request:
    """A request: its prompt, what it may generate, and what you note about it."""

    def __init__(self, request_id, prompt_token_ids, max_tokens, priority=0, arrival_time=0):
        self.request_id = request_id
        self.num_prompt_tokens = len(prompt_token_ids)
        self.max_tokens = max_tokens
        self.priority = priority
        self.arrival_time = arrival_time
        self.all_token_ids = list(prompt_token_ids)
        self.num_computed_tokens = 0
        self.num_preemptions = 0
        self.status = "WAITING"

    @property
    def num_tokens(self):
        """Prompt and output."""
        return len(self.all_token_ids)

    @property
    def num_output_tokens(self):
        """Output alone."""
        return len(self.all_token_ids) - self.num_prompt_tokens

    def append_output_token_ids(self, token):
        """Add an output token."""
        self.all_token_ids.append(token)


class Block:
    """A block of the pool."""

    def __init__(self, block_id):
        self.block_id = block_id
        self.ref_cnt = 0
        self._key = None  # the tokens of this block and of all blocks before it


class KVCacheManager:
    """Blocks for requests."""

    def __init__(self, num_blocks, block_size, enable_caching=True):
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._caching = enable_caching
        self._blocks = [Block(number) for number in range(num_blocks)]
        self._free = self._blocks[1:]
        self._cached = {}  # key -> blocks, the first cached one first
        self._tables = {}
        self._counted = {}  # how many blocks at the front of a table are cached

    def get_num_free_blocks(self):
        """Return the number of blocks without a user."""
        return len(self._free)

    def get_computed_blocks(self, request):
        """Return the cached blocks that hold the first tokens of a request, and how many tokens that is."""
        hits = []
        if self._caching:
            for key in self._keys(request, (request.num_tokens - 1) // self.block_size):
                if key not in self._cached:
                    break
                hits.append(self._cached[key][0])
        return hits, len(hits) * self.block_size

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        """Make room for more tokens behind the computed ones and the hits; return the new blocks, or None."""
        hits = list(new_computed_blocks or ())
        table = self._tables.get(request.request_id, [])
        if num_new_tokens < 1 or (hits and table):
            raise ValueError("less than one token, or hits for a request that has blocks already")
        tokens = request.num_computed_tokens + len(hits) * self.block_size + num_new_tokens
        new = max(-(-tokens // self.block_size) - len(table) - len(hits), 0)
        if new + sum(block.ref_cnt == 0 for block in hits) > len(self._free):
            return None
        for block in hits:
            if block.ref_cnt == 0:
                self._free.remove(block)
            block.ref_cnt += 1
        taken = [self._take() for _ in range(new)]
        self._tables[request.request_id] = [*table, *hits, *taken]
        if self._caching:
            self._cache(request, min(tokens, request.num_tokens) // self.block_size, len(hits))
        return taken

    def free(self, request):
        """Take back all blocks of a request, the last first."""
        table = self._tables.pop(request.request_id, [])
        self._counted.pop(request.request_id, None)
        for block in table:
            block.ref_cnt -= 1
        self._free += [block for block in reversed(table) if block.ref_cnt == 0]

    def reset_prefix_cache(self):
        """Forget all cached content if no block has a user."""
        if any(block.ref_cnt for block in self._blocks):
            return False
        self._cached = {}
        for block in self._blocks:
            block._key = None
        return True

    def _keys(self, request, count):
        """The keys of the first blocks of a request."""
        size, tokens, key = self.block_size, request.all_token_ids, ""
        for place in range(count):
            own = ".".join(map(str, tokens[place * size : (place + 1) * size]))
            key = f"{key}/{own}" if key else f"h{own}"
            yield key

    def _take(self):
        """Take the block that has been free for longest; what it held is forgotten."""
        block = self._free.pop(0)
        if block._key is not None:
            self._cached[block._key].remove(block)
            if not self._cached[block._key]:
                del self._cached[block._key]
            block._key = None
        block.ref_cnt = 1
        return block

    def _cache(self, request, full, hits):
        """Cache the blocks of a table that are full now."""
        already = self._counted.get(request.request_id, hits)
        keys = list(self._keys(request, full))
        for block, key in list(zip(self._tables[request.request_id], keys))[already:]:
            if block._key is None:
                block._key = key
                self._cached.setdefault(key, []).append(block)
        self._counted[request.request_id] = max(already, full)
