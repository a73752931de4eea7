"""The blocks, the pool and the requests that your manager is given. Use what the handout names, and assign to nothing.

Block 0 is the null block. It stands in a table where nothing is stored, is never free, and is never counted.
"""


class Block:
    """A block of the pool. Its attributes can be read: number, users, hash in the index, and whether it is null."""

    def __init__(self, block_id):
        self._block_id = block_id
        self._ref_cnt = 0
        self._key = None  # (hash, group_id) while it is in the index

    block_id = property(lambda self: self._block_id)
    ref_cnt = property(lambda self: self._ref_cnt)
    block_hash = property(lambda self: None if self._key is None else self._key[0])
    is_null = property(lambda self: self._block_id == 0)

    def __repr__(self):
        return f"<block {self._block_id}>"


class BlockPool:
    """Blocks 1 to num_blocks - 1, of which some are in the free queue, and the index of those that can be found."""

    def __init__(self, num_blocks):
        self._blocks = [Block(number) for number in range(num_blocks)]
        self._queue = self._blocks[1:]  # head first
        self._index = {}  # (hash, group_id) -> blocks, the one entered first in front

    null_block = property(lambda self: self._blocks[0])
    num_free = property(lambda self: len(self._queue))

    def get_new_blocks(self, n):
        """Take n blocks from the head of the queue; each loses its hash. ValueError when there are fewer."""
        if not 0 <= n <= len(self._queue):
            raise ValueError(f"get_new_blocks({n}): {len(self._queue)} blocks are free")
        blocks, self._queue = self._queue[:n], self._queue[n:]
        for block in blocks:
            self._forget(block)
            block._ref_cnt = 1
        return blocks

    def touch(self, blocks):
        """One more user of each block; a free one leaves the queue."""
        for block in list(blocks):
            if not block.is_null:
                if block._ref_cnt == 0:
                    self._queue.remove(block)
                block._ref_cnt += 1

    def free_blocks(self, blocks):
        """One user less of each block; those without users go to the tail of the queue, in this order."""
        used = [block for block in blocks if not block.is_null]
        for block in used:
            if used.count(block) > block._ref_cnt:
                raise ValueError(f"free_blocks: block {block._block_id} is freed more often than it is used")
        for block in used:
            block._ref_cnt -= 1
            if block._ref_cnt == 0:
                self._queue.append(block)

    def cache_full_blocks(self, blocks, hashes, group_id):
        """Enter each block that has no hash under (hash, group_id). ValueError for lists of different length."""
        blocks, hashes = list(blocks), list(hashes)
        if len(blocks) != len(hashes):
            raise ValueError(f"cache_full_blocks: {len(blocks)} blocks and {len(hashes)} hashes")
        for block, block_hash in zip(blocks, hashes):
            if not block.is_null and block._key is None:
                block._key = (block_hash, group_id)
                self._index.setdefault(block._key, []).append(block)

    def get_cached_block(self, block_hash, group_id):
        """Return the block that was entered first under (hash, group_id), or None."""
        blocks = self._index.get((block_hash, group_id))
        return blocks[0] if blocks else None

    def _forget(self, block):
        """Take a block's hash away, and its entry in the index."""
        if block._key is not None:
            blocks = self._index[block._key]
            blocks.remove(block)
            if not blocks:
                del self._index[block._key]
            block._key = None


class Request:
    """A request; its attributes can be read. What is computed, and how many tokens there are, the caller changes."""

    def __init__(self, request_id, tokens, num_encoder_tokens=0):
        self._request_id = request_id
        self._tokens = tokens
        self._num_encoder_tokens = num_encoder_tokens
        self._num_computed_tokens = 0

    request_id = property(lambda self: self._request_id)
    num_tokens = property(lambda self: len(self._tokens))
    num_computed_tokens = property(lambda self: self._num_computed_tokens)
    num_encoder_tokens = property(lambda self: self._num_encoder_tokens)

    def block_hashes(self, block_size):
        """Return a new list with a hash for each full block of that size."""
        return [self._tokens[:end] for end in range(block_size, len(self._tokens) + 1, block_size)]
