from __future__ import annotations

import hashlib
from typing import Any, Hashable, Iterable, Optional, Sequence


class KVCacheBlock:
    __slots__ = ("block_id", "ref_cnt", "block_hash", "is_null", "prev_free", "next_free", "payload")

    def __init__(self, block_id: int, block_size: int = 1) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: Optional[Hashable] = None
        self.is_null = False
        self.prev_free: Optional[KVCacheBlock] = None
        self.next_free: Optional[KVCacheBlock] = None
        self.payload = [0] * block_size

    def reset_hash(self) -> None:
        self.block_hash = None


class FreeKVCacheBlockQueue:
    """A ring: the one fake block stands before the first and behind the last."""

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        ring = KVCacheBlock(-1)
        ring.prev_free = ring.next_free = ring
        self.fake_free_list_head = self.fake_free_list_tail = ring
        self.num_free_blocks = 0
        self.append_n(blocks)

    def popleft(self) -> KVCacheBlock:
        first = self.fake_free_list_head.next_free
        if first is self.fake_free_list_head:
            raise ValueError("queue is empty")
        self.remove(first)
        return first

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        if n > self.num_free_blocks:
            raise ValueError("queue is too short")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        if block.next_free is None:
            raise RuntimeError("not a free block")
        before, after = block.prev_free, block.next_free
        before.next_free, after.prev_free = after, before
        block.prev_free = block.next_free = None
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        self.append_n([block])

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        blocks = tuple(blocks)
        if any(block.next_free is not None for block in blocks):
            raise RuntimeError("a block is free already")
        ring = self.fake_free_list_head
        for block in blocks:
            last = ring.prev_free
            block.prev_free, block.next_free = last, ring
            last.next_free = ring.prev_free = block
        self.num_free_blocks += len(blocks)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        found = []
        block = self.fake_free_list_head.next_free
        while block is not self.fake_free_list_head:
            found.append(block)
            block = block.next_free
        return found


class BlockPool:
    def __init__(self, num_blocks: int, enable_caching: bool = True, block_size: int = 1) -> None:
        if num_blocks < 1:
            raise ValueError("num_blocks must be positive")
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.null_block = self.blocks[0]
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks[1:])
        self.cached_block_hash_to_block: dict[Hashable, dict[int, KVCacheBlock]] = {}

    # --- counting users -------------------------------------------------

    def get_new_blocks(self, n: int) -> list[KVCacheBlock]:
        taken = self.free_block_queue.popleft_n(n)
        for block in taken:
            self._maybe_evict(block)
            block.ref_cnt = 1
        return taken

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        for block in blocks:
            if not block.is_null:
                if block.ref_cnt == 0:
                    self.free_block_queue.remove(block)
                block.ref_cnt += 1

    def free_blocks(self, blocks: Iterable[KVCacheBlock]) -> None:
        given_back = [b for b in blocks if not b.is_null]
        if any(b.ref_cnt == 0 for b in given_back):
            raise ValueError("double free")
        for b in given_back:
            b.ref_cnt -= 1
        self.free_block_queue.append_n(b for b in given_back if b.ref_cnt == 0)

    def get_num_free_blocks(self) -> int:
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        total = self.num_blocks - 1
        return 1 - self.get_num_free_blocks() / total if total else 0.0

    # --- index ----------------------------------------------------------

    def cache_full_blocks(self, blocks: Sequence[KVCacheBlock], hashes: Sequence[Hashable]) -> None:
        if not self.enable_caching:
            return
        for block, key in zip(blocks, hashes):
            if not block.is_null and block.block_hash is None:
                block.block_hash = key
                self.cached_block_hash_to_block.setdefault(key, {})[block.block_id] = block

    def get_cached_block(self, block_hash: Hashable) -> Optional[KVCacheBlock]:
        same = self.cached_block_hash_to_block.get(block_hash, {})
        return next(iter(same.values()), None)

    def _maybe_evict(self, block: KVCacheBlock) -> bool:
        key = block.block_hash
        same = self.cached_block_hash_to_block.get(key) if key is not None else None
        if same is None or block.block_id not in same:
            return False
        same.pop(block.block_id)
        if len(same) == 0:
            self.cached_block_hash_to_block.pop(key)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        ids = list(block_ids)
        if not all(0 <= i < self.num_blocks for i in ids):
            raise ValueError("no such block")
        for i in ids:
            self._maybe_evict(self.blocks[i])

    def reset_prefix_cache(self) -> bool:
        if self.get_num_free_blocks() != self.num_blocks - 1:
            return False
        self.cached_block_hash_to_block = {}
        for block in self.blocks:
            block.reset_hash()
        return True

    # --- copy on write --------------------------------------------------

    def fork_block(self, block: KVCacheBlock) -> KVCacheBlock:
        if block.is_null or block.ref_cnt == 0:
            raise ValueError("nobody uses this block")
        if block.ref_cnt > 1:
            [copy] = self.get_new_blocks(1)
            copy.payload[:] = block.payload
            block.ref_cnt -= 1
            return copy
        self._maybe_evict(block)
        return block


def hash_block_tokens(parent_hash: Any, token_ids: Sequence[int], extra_keys: Any = None) -> str:
    text = repr((parent_hash, list(token_ids), extra_keys))
    return hashlib.sha256(text.encode()).hexdigest()


def extra_keys(request: "Request", start: int, end: int) -> Optional[tuple]:
    keys: tuple = ()
    if request.lora_name is not None:
        keys += (request.lora_name,)
    keys += tuple((name, offset - start) for name, offset, length in request.mm_features
                  if offset < end and offset + length > start)
    if request.cache_salt is not None and start == 0:
        keys += (request.cache_salt,)
    return keys or None


class Request:
    def __init__(self, request_id: str, token_ids: Sequence[int], block_size: int, *,
                 lora_name: Optional[str] = None, cache_salt: Optional[str] = None,
                 mm_features: Sequence[tuple[str, int, int]] = (),
                 skip_reading_prefix_cache: bool = False) -> None:
        self.request_id = request_id
        self.tokens = list(token_ids)
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = list(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens = 0
        self.block_hashes: list[str] = []
        for end in range(block_size, len(self.tokens) + 1, block_size):
            self._hash_block(end)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    def _hash_block(self, end: int) -> None:
        start = end - self.block_size
        parent = self.block_hashes[-1] if self.block_hashes else None
        keys = extra_keys(self, start, end)
        self.block_hashes.append(hash_block_tokens(parent, self.tokens[start:end], keys))

    def append_token_ids(self, token_ids: Iterable[int]) -> None:
        for token in token_ids:
            self.tokens.append(token)
            if len(self.tokens) % self.block_size == 0:
                self._hash_block(len(self.tokens))


class KVCacheManager:
    def __init__(self, num_blocks: int, block_size: int, enable_caching: bool = True,
                 max_model_len: int = 8192) -> None:
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}
        self.num_cached_block: dict[str, int] = {}

    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        hits: list[KVCacheBlock] = []
        if self.enable_caching and not request.skip_reading_prefix_cache:
            for k in range((request.num_tokens - 1) // self.block_size):
                block = self.block_pool.get_cached_block(request.block_hashes[k])
                if block is None:
                    break
                hits.append(block)
        return hits, self.block_size * len(hits)

    def allocate_slots(self, request: Request, num_new_tokens: int,
                       new_computed_blocks: Optional[Sequence[KVCacheBlock]] = None):
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens must be positive")
        hits = tuple(new_computed_blocks or ())
        rid = request.request_id
        held = len(self.req_to_blocks.get(rid, ()))
        if hits and held:
            raise ValueError("this request has blocks already")

        total = request.num_computed_tokens + len(hits) * self.block_size
        need = -(-min(total + num_new_tokens, self.max_model_len) // self.block_size)
        new = max(need - held - len(hits), 0)
        from_queue = new + len([b for b in hits if b.ref_cnt == 0])
        if from_queue > self.block_pool.get_num_free_blocks():
            return None

        self.block_pool.touch(hits)
        fresh = self.block_pool.get_new_blocks(new)
        table = self.req_to_blocks.setdefault(rid, [])
        table += hits
        table += fresh

        if self.enable_caching:
            first = self.num_cached_block.setdefault(rid, len(hits))
            full = min(total + num_new_tokens, request.num_tokens) // self.block_size
            for k in range(first, full):
                self.block_pool.cache_full_blocks([table[k]], [request.block_hashes[k]])
            self.num_cached_block[rid] = max(first, full)
        return fresh

    def free(self, request: Request) -> None:
        table = self.req_to_blocks.pop(request.request_id, None)
        if table:
            self.block_pool.free_blocks(reversed(table))

    def write(self, request: Request, pos: int, token: int) -> KVCacheBlock:
        table = self.req_to_blocks.get(request.request_id, [])
        if not 0 <= pos < len(table) * self.block_size:
            raise ValueError("no slot for this position")
        k, slot = divmod(pos, self.block_size)
        table[k] = self.block_pool.fork_block(table[k])
        table[k].payload[slot] = token
        return table[k]
