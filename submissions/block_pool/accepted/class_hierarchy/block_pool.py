from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict

# --- errors
class QueueError(RuntimeError): pass
class NotQueuedError(QueueError): pass
class AlreadyQueuedError(QueueError): pass
class PoolError(ValueError): pass
class OutOfBlocksError(PoolError): pass
class DoubleFreeError(PoolError): pass
class BadBlockIdError(PoolError): pass
class ForkError(PoolError): pass
class AllocationError(ValueError): pass

# --- blocks and the queue
class ListNode:
    block_id = -1

    def __init__(self):
        self.prev_free = None
        self.next_free = None

    @property
    def is_linked(self):
        return self.prev_free is not None and self.next_free is not None

    def link_before(self, other):
        self.prev_free, self.next_free = other.prev_free, other
        self.prev_free.next_free = self
        other.prev_free = self

    def unlink(self):
        self.prev_free.next_free = self.next_free
        self.next_free.prev_free = self.prev_free
        self.prev_free = self.next_free = None

class Sentinel(ListNode):
    def __init__(self, name="sentinel"):
        super().__init__()
        self.name = name

class KVCacheBlock(ListNode):
    def __init__(self, block_id, block_size=1, fill=0):
        super().__init__()
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash = None
        self.is_null = False
        self.payload = [fill] * block_size

    def reset_hash(self):
        self.block_hash = None

    @property
    def in_use(self):
        return not self.is_null and self.ref_cnt > 0

class NullBlock(KVCacheBlock):
    def __init__(self, block_id=0, block_size=1):
        super().__init__(block_id, block_size)
        self.is_null = True
        self.ref_cnt = 1

class LinkedList:
    def __init__(self, nodes=()):
        self.fake_free_list_head = Sentinel("head")
        self.fake_free_list_tail = Sentinel("tail")
        self.fake_free_list_head.next_free = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free = self.fake_free_list_head
        self.num_free_blocks = 0
        for node in nodes:
            self._push(node)

    def __iter__(self):
        node = self.fake_free_list_head.next_free
        while node is not self.fake_free_list_tail:
            yield node
            node = node.next_free

    def _push(self, node):
        node.link_before(self.fake_free_list_tail)
        self.num_free_blocks += 1

    def _drop(self, node):
        node.unlink()
        self.num_free_blocks -= 1
        return node

class FreeKVCacheBlockQueue(LinkedList):
    def __init__(self, blocks, name="free"):
        super().__init__(blocks)
        self.name = name

    def popleft(self):
        if not self.num_free_blocks:
            raise OutOfBlocksError(f"queue {self.name!r} is empty")
        return self._drop(self.fake_free_list_head.next_free)

    def popleft_n(self, n):
        if n > self.num_free_blocks:
            raise OutOfBlocksError(f"queue {self.name!r} has {self.num_free_blocks} blocks, not {n}")
        return [self.popleft() for _ in range(n)]

    def remove(self, block):
        if not block.is_linked:
            raise NotQueuedError(f"block {block.block_id} is not in queue {self.name!r}")
        self._drop(block)

    def append(self, block):
        if block.is_linked:
            raise AlreadyQueuedError(f"block {block.block_id} is in queue {self.name!r} already")
        self._push(block)

    def append_n(self, blocks):
        blocks = tuple(blocks)
        for block in blocks:
            if block.is_linked:
                raise AlreadyQueuedError(f"block {block.block_id} is in queue {self.name!r} already")
        for block in blocks:
            self._push(block)

    def get_all_free_blocks(self):
        return list(self)

# --- the index and the pool
class HashIndex(defaultdict):
    """hash -> OrderedDict of block id -> block. Looks never leave an empty entry behind."""

    def __init__(self):
        super().__init__(OrderedDict)

    def insert(self, block_hash, block):
        self[block_hash][block.block_id] = block

    def holds(self, block_hash, block):
        return block_hash in self and block.block_id in self[block_hash]

    def first(self, block_hash, default=None):
        if block_hash not in self:
            return default
        return next(iter(self[block_hash].values()))

    def discard(self, block_hash, block):
        del self[block_hash][block.block_id]
        if not self[block_hash]:
            del self[block_hash]

class BasePool(ABC):
    def __init__(self, num_blocks, block_size=1):
        if num_blocks < 1:
            raise PoolError("a pool has at least the null block")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.null_block = NullBlock(0, block_size)
        self.blocks = [self.null_block]
        self.blocks.extend(KVCacheBlock(block_id, block_size) for block_id in range(1, num_blocks))
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])

    @abstractmethod
    def _maybe_evict(self, block): ...

    def get_num_free_blocks(self):
        return self.free_block_queue.num_free_blocks

    def get_usage(self):
        usable = self.num_blocks - 1
        return (usable - self.get_num_free_blocks()) / usable if usable else 0.0

    def get_new_blocks(self, n, ref_cnt=1):
        if n > self.get_num_free_blocks():
            raise OutOfBlocksError(f"{n} blocks wanted, {self.get_num_free_blocks()} free")
        taken = self.free_block_queue.popleft_n(n)
        for block in taken:
            self._maybe_evict(block)
            block.ref_cnt = ref_cnt
        return taken

    def touch(self, blocks):
        for block in self._without_null(blocks):
            if not block.in_use:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        blocks = self._without_null(blocks)
        for block in blocks:
            if not block.in_use:
                raise DoubleFreeError(f"block {block.block_id} is free already")
        for block in blocks:
            block.ref_cnt -= 1
        self.free_block_queue.append_n(block for block in blocks if not block.in_use)

    @staticmethod
    def _without_null(blocks):
        return [block for block in blocks if not block.is_null]

class CachingPool(BasePool):
    def __init__(self, num_blocks, enable_caching=True, block_size=1):
        super().__init__(num_blocks, block_size)
        self.enable_caching = enable_caching
        self.cached_block_hash_to_block = HashIndex()

    def cache_full_blocks(self, blocks, hashes):
        if not self.enable_caching:
            return
        for block, block_hash in zip(blocks, hashes):
            if not block.is_null and block.block_hash is None:
                block.block_hash = block_hash
                self.cached_block_hash_to_block.insert(block_hash, block)

    def get_cached_block(self, block_hash, default=None):
        return self.cached_block_hash_to_block.first(block_hash, default)

    def _maybe_evict(self, block):
        if block.block_hash is None or not self.cached_block_hash_to_block.holds(block.block_hash, block):
            return False
        self.cached_block_hash_to_block.discard(block.block_hash, block)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids):
        block_ids = tuple(block_ids)
        for block_id in block_ids:
            if not 0 <= block_id < self.num_blocks:
                raise BadBlockIdError(f"no block {block_id}")
        for block_id in block_ids:
            self._maybe_evict(self.blocks[block_id])

    def reset_prefix_cache(self):
        if any(block.in_use for block in self.blocks):
            return False
        self.cached_block_hash_to_block.clear()
        for block in self.blocks:
            block.reset_hash()
        return True

class BlockPool(CachingPool):
    def fork_block(self, block):
        if not block.in_use:
            raise ForkError(f"block {block.block_id} has no user")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        copy = self.get_new_blocks(1)[0]
        copy.payload[:] = block.payload
        block.ref_cnt -= 1
        return copy

# --- hashes and requests
class BlockHash:
    __slots__ = ("parent", "own", "_value")

    def __init__(self, parent, own):
        self.parent = parent
        self.own = own
        self._value = hash((parent, own))

    def __hash__(self):
        return self._value

    def __eq__(self, other):
        one = self
        while isinstance(one, BlockHash) and isinstance(other, BlockHash):
            if one is other:
                return True
            if one._value != other._value or one.own != other.own:
                return False
            one, other = one.parent, other.parent
        return type(one) is type(other) and one == other

def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    return BlockHash(parent_hash, (tuple(token_ids), extra_keys))

class KeySource(ABC):
    @abstractmethod
    def keys(self, request, start, end): ...

class LoraKeys(KeySource):
    def keys(self, request, start, end):
        if request.lora_name is not None:
            yield request.lora_name

class ImageKeys(KeySource):
    def keys(self, request, start, end):
        for mm_hash, offset, length in request.mm_features:
            if offset < end and offset + length > start:
                yield mm_hash, offset - start

class SaltKeys(KeySource):
    def keys(self, request, start, end):
        if start == 0 and request.cache_salt is not None:
            yield request.cache_salt

def extra_keys(request, start, end, sources=(LoraKeys(), ImageKeys(), SaltKeys())):
    found = tuple(key for source in sources for key in source.keys(request, start, end))
    return found if found else None

class TokenSequence:
    def __init__(self, token_ids=()):
        self._token_ids = list(token_ids)

    num_tokens = property(lambda self: len(self._token_ids))

    def append_token_ids(self, token_ids):
        self._token_ids.extend(token_ids)

class Request(TokenSequence):
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None, cache_salt=None, mm_features=(),
                 skip_reading_prefix_cache=False, priority=0):
        super().__init__(token_ids)
        self.request_id = request_id
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = tuple(map(tuple, mm_features))
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.priority = priority
        self.num_computed_tokens = 0
        self.block_hashes = []
        self._update_hashes()

    def append_token_ids(self, token_ids):
        super().append_token_ids(token_ids)
        self._update_hashes()

    def _update_hashes(self):
        for number in range(len(self.block_hashes), self.num_tokens // self.block_size):
            start = number * self.block_size
            end = start + self.block_size
            parent = self.block_hashes[number - 1] if number else None
            self.block_hashes.append(
                hash_block_tokens(parent, self._token_ids[start:end], extra_keys(self, start, end)))

# --- the manager
class BaseManager:
    pool_class = BlockPool

    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.block_pool = self.pool_class(num_blocks, enable_caching, block_size)
        self.req_to_blocks = defaultdict(tuple)     # request id -> tuple of blocks
        self.num_cached_block = defaultdict(int)

    def blocks_for(self, num_tokens):
        return -(-min(num_tokens, self.max_model_len) // self.block_size)

class KVCacheManager(BaseManager):
    def get_computed_blocks(self, request):
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return [], 0
        hits = []
        for block_hash in request.block_hashes[:(request.num_tokens - 1) // self.block_size]:
            block = self.block_pool.get_cached_block(block_hash)
            if block is None:
                break
            hits.append(block)
        return hits, len(hits) * self.block_size

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None, num_lookahead_tokens=0):
        if num_new_tokens < 1:
            raise AllocationError("nothing to allocate")
        hits = tuple(new_computed_blocks or ())
        table = self.req_to_blocks[request.request_id]
        if hits and table:
            raise AllocationError(f"{request.request_id} has its first blocks already")
        end = request.num_computed_tokens + len(hits) * self.block_size + num_new_tokens
        new = max(self.blocks_for(end + num_lookahead_tokens) - len(table) - len(hits), 0)
        if new + sum(not block.in_use for block in hits) > self.block_pool.get_num_free_blocks():
            return None
        self.block_pool.touch(hits)
        fresh = self.block_pool.get_new_blocks(new)
        self.req_to_blocks[request.request_id] = table + hits + tuple(fresh)
        if self.enable_caching:
            self._cache_up_to(request, min(end, request.num_tokens) // self.block_size, len(hits))
        return fresh

    def _cache_up_to(self, request, full, num_hits=0):
        request_id = request.request_id
        start = max(self.num_cached_block[request_id], num_hits)
        part = slice(start, full)
        self.block_pool.cache_full_blocks(self.req_to_blocks[request_id][part], request.block_hashes[part])
        self.num_cached_block[request_id] = max(start, full)

    def free(self, request):
        self.block_pool.free_blocks(reversed(self.req_to_blocks[request.request_id]))
        del self.req_to_blocks[request.request_id]
        self.num_cached_block.pop(request.request_id, None)

    def write(self, request, pos, token):
        table = self.req_to_blocks.get(request.request_id, ())
        if pos < 0 or pos >= len(table) * self.block_size:
            raise AllocationError(f"{request.request_id} has no position {pos}")
        number, slot = divmod(pos, self.block_size)
        block = self.block_pool.fork_block(table[number])
        self.req_to_blocks[request.request_id] = table[:number] + (block,) + table[number + 1:]
        block.payload[slot] = token
        return block
