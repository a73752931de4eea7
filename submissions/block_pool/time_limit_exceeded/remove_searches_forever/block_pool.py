# block_pool.py -- ring with one fake block, digests as hashes, one record per request
from __future__ import annotations

import hashlib
from typing import Any, Iterable, Iterator, Optional


class KVCacheBlock:
    __slots__ = ("block_id", "ref_cnt", "block_hash", "is_null",
                 "prev_free", "next_free", "payload")

    def __init__(self, block_id: int, block_size: int = 1) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: Optional[bytes] = None
        self.is_null = False
        self.prev_free: Optional[KVCacheBlock] = None
        self.next_free: Optional[KVCacheBlock] = None
        self.payload = [0 for _ in range(block_size)]

    def reset_hash(self) -> None:
        self.block_hash = None

    @property
    def queued(self) -> bool:
        return self.next_free is not None


class FreeKVCacheBlockQueue:
    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        anchor = KVCacheBlock(-1)
        anchor.prev_free = anchor.next_free = anchor
        self._anchor = anchor
        self.num_free_blocks = 0
        self.append_n(blocks)

    @property
    def fake_free_list_head(self) -> KVCacheBlock:
        return self._anchor

    fake_free_list_tail = fake_free_list_head

    def __iter__(self) -> Iterator[KVCacheBlock]:
        block = self._anchor.next_free
        while block is not self._anchor:
            following = block.next_free
            yield block
            block = following

    def popleft(self) -> KVCacheBlock:
        first = self._anchor.next_free
        if first is self._anchor:
            raise ValueError("popleft from an empty queue")
        self.remove(first)
        return first

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        if n > self.num_free_blocks:
            raise ValueError("not enough free blocks")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        here = self._anchor.next_free
        while here is not block:
            here = here.next_free
            if here is None:
                raise RuntimeError("remove of a block that is not queued")
        block.prev_free.next_free = block.next_free
        block.next_free.prev_free = block.prev_free
        block.prev_free = block.next_free = None
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        self.append_n((block,))

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        chain = tuple(blocks)
        if any(block.queued for block in chain):
            raise RuntimeError("append of a block that is queued already")
        last = self._anchor.prev_free
        for block in chain:
            last.next_free, block.prev_free = block, last
            last = block
        last.next_free, self._anchor.prev_free = self._anchor, last
        self.num_free_blocks += len(chain)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        return list(self)


class BlockPool:
    def __init__(self, num_blocks: int, enable_caching: bool = True,
                 block_size: int = 1) -> None:
        if num_blocks < 1:
            raise ValueError("num_blocks < 1")
        self.enable_caching = enable_caching
        self.block_size = block_size
        self.blocks = [KVCacheBlock(k, block_size) for k in range(num_blocks)]
        self.null_block, *rest = self.blocks
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(rest)
        # flat index: hash -> block ids in order of insertion
        self._ids: dict[Any, list[int]] = {}

    @property
    def cached_block_hash_to_block(self) -> dict[Any, dict[int, KVCacheBlock]]:
        return {h: {k: self.blocks[k] for k in ids} for h, ids in self._ids.items()}

    def get_new_blocks(self, n: int) -> list[KVCacheBlock]:
        fresh = self.free_block_queue.popleft_n(n)
        for block in fresh:
            self._maybe_evict(block)
            block.ref_cnt = 1
        return fresh

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        for block in blocks:
            if not block.is_null:
                if not block.ref_cnt:
                    self.free_block_queue.remove(block)
                block.ref_cnt += 1

    def free_blocks(self, blocks: Iterable[KVCacheBlock]) -> None:
        todo = [b for b in blocks if not b.is_null]
        if any(b.ref_cnt <= 0 for b in todo):
            raise ValueError("double free")
        idle = []
        for b in todo:
            b.ref_cnt -= 1
            if b.ref_cnt == 0:
                idle.append(b)
        self.free_block_queue.append_n(idle)

    def get_num_free_blocks(self) -> int:
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        usable = len(self.blocks) - 1
        return 1 - self.get_num_free_blocks() / usable if usable else 0

    def cache_full_blocks(self, blocks, hashes) -> None:
        if not self.enable_caching:
            return
        for block, digest in zip(blocks, hashes):
            if not block.is_null and block.block_hash is None:
                block.block_hash = digest
                self._ids.setdefault(digest, []).append(block.block_id)

    def get_cached_block(self, block_hash) -> Optional[KVCacheBlock]:
        ids = self._ids.get(block_hash)
        return self.blocks[ids[0]] if ids else None

    def _maybe_evict(self, block: KVCacheBlock) -> bool:
        ids = [] if block.block_hash is None else self._ids.get(block.block_hash, [])
        if block.block_id not in ids:
            return False
        ids.remove(block.block_id)
        if not ids:
            self._ids.pop(block.block_hash)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        wanted = list(block_ids)
        if not all(0 <= k < len(self.blocks) for k in wanted):
            raise ValueError("block id out of range")
        for k in wanted:
            self._maybe_evict(self.blocks[k])

    def reset_prefix_cache(self) -> bool:
        if any(b.ref_cnt for b in self.blocks if not b.is_null):
            return False
        self._ids = {}
        for b in self.blocks:
            b.reset_hash()
        return True

    def fork_block(self, block: KVCacheBlock) -> KVCacheBlock:
        if block.is_null or block.ref_cnt == 0:
            raise ValueError("fork of a block without users")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        (copy,) = self.get_new_blocks(1)
        copy.payload[:] = block.payload
        block.ref_cnt -= 1
        return copy


def hash_block_tokens(parent_hash, token_ids, extra_keys=None):
    text = repr((parent_hash, tuple(token_ids), extra_keys))
    return hashlib.sha256(text.encode()).digest()


def extra_keys(request, start, end):
    lora = [] if request.lora_name is None else [request.lora_name]
    items = [(mm_hash, offset - start)
             for mm_hash, offset, length in request.mm_features
             if offset < end and start < offset + length]
    salt = [] if start != 0 or request.cache_salt is None else [request.cache_salt]
    return tuple(lora + items + salt) or None


class Request:
    def __init__(self, request_id, token_ids, block_size, *, lora_name=None,
                 cache_salt=None, mm_features=(), skip_reading_prefix_cache=False):
        self.request_id = request_id
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = tuple(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens = 0
        self.num_tokens = 0
        self.block_hashes: list[bytes] = []
        self._rest: list[int] = []          # tokens of the block that is not full yet
        self.append_token_ids(token_ids)

    def append_token_ids(self, token_ids) -> None:
        for token in token_ids:
            self._rest.append(token)
            self.num_tokens += 1
            if len(self._rest) == self.block_size:
                self._close_block()

    def _close_block(self) -> None:
        parent = self.block_hashes[-1] if self.block_hashes else None
        end = self.num_tokens
        keys = extra_keys(self, end - self.block_size, end)
        self.block_hashes.append(hash_block_tokens(parent, self._rest, keys))
        self._rest = []


class _Entry:
    """What the manager knows of one request."""

    def __init__(self, cached: int) -> None:
        self.table: list[KVCacheBlock] = []
        self.cached = cached


class KVCacheManager:
    def __init__(self, num_blocks, block_size, enable_caching=True, max_model_len=8192):
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self._entries: dict[str, _Entry] = {}

    @property
    def req_to_blocks(self):
        return {rid: list(entry.table) for rid, entry in self._entries.items()}

    @property
    def num_cached_block(self):
        if not self.enable_caching:
            return {}
        return {rid: entry.cached for rid, entry in self._entries.items()}

    def get_computed_blocks(self, request):
        hits: list[KVCacheBlock] = []
        if self.enable_caching and not request.skip_reading_prefix_cache:
            most = (request.num_tokens - 1) // self.block_size
            for digest in request.block_hashes[:most]:
                block = self.block_pool.get_cached_block(digest)
                if block is None:
                    break
                hits.append(block)
        return hits, self.block_size * len(hits)

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        if num_new_tokens < 1:
            raise ValueError("nothing to allocate")
        hits = tuple(new_computed_blocks or ())
        entry = self._entries.get(request.request_id)
        held = len(entry.table) if entry else 0
        if hits and held:
            raise ValueError("hits after the first allocation")

        pool, size = self.block_pool, self.block_size
        upto = request.num_computed_tokens + len(hits) * size + num_new_tokens
        need = -(-min(upto, self.max_model_len) // size)
        new = max(0, need - held - len(hits))
        if new + [b.ref_cnt for b in hits].count(0) > pool.get_num_free_blocks():
            return None

        if entry is None:
            entry = self._entries[request.request_id] = _Entry(len(hits))
        pool.touch(hits)
        fresh = pool.get_new_blocks(new)
        entry.table += hits
        entry.table += fresh

        full = min(upto, request.num_tokens) // size
        if self.enable_caching and full > entry.cached:
            pool.cache_full_blocks(entry.table[entry.cached:full],
                                   request.block_hashes[entry.cached:full])
            entry.cached = full
        return fresh

    def free(self, request):
        entry = self._entries.pop(request.request_id, None)
        if entry is not None:
            self.block_pool.free_blocks(entry.table[::-1])

    def write(self, request, pos, token):
        entry = self._entries.get(request.request_id)
        if entry is None or not 0 <= pos < len(entry.table) * self.block_size:
            raise ValueError("no slot at this position")
        k = pos // self.block_size
        block = entry.table[k] = self.block_pool.fork_block(entry.table[k])
        block.payload[pos % self.block_size] = token
        return block
