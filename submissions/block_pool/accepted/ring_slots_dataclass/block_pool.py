from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple


@dataclass(eq=False, slots=True)
class KVCacheBlock:
    block_id: int
    block_size: InitVar[int] = 1
    ref_cnt: int = field(default=0, init=False)
    block_hash: Hashable | None = field(default=None, init=False)
    is_null: bool = field(default=False, init=False)
    prev_free: KVCacheBlock | None = field(default=None, init=False, repr=False)
    next_free: KVCacheBlock | None = field(default=None, init=False, repr=False)
    payload: list[int] = field(init=False, repr=False)

    def __post_init__(self, block_size: int) -> None:
        self.payload = [0] * block_size

    def reset_hash(self) -> None:
        self.block_hash = None


class FreeKVCacheBlockQueue:
    """A ring: the sentinel's next is the head of the queue, its prev is the tail."""

    __slots__ = ("_ring", "num_free_blocks")

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        ring = KVCacheBlock(-1, 0)
        ring.prev_free = ring.next_free = ring
        self._ring = ring
        self.num_free_blocks = 0
        for block in blocks:
            self._insert_last(block)

    @property
    def fake_free_list_head(self) -> KVCacheBlock:
        return self._ring

    @property
    def fake_free_list_tail(self) -> KVCacheBlock:
        return self._ring

    def __iter__(self) -> Iterator[KVCacheBlock]:
        node = self._ring.next_free
        while node is not self._ring:
            yield node
            node = node.next_free

    def __len__(self) -> int:
        return self.num_free_blocks

    def _insert_last(self, block: KVCacheBlock) -> None:
        ring = self._ring
        block.prev_free, block.next_free = ring.prev_free, ring
        ring.prev_free.next_free = block
        ring.prev_free = block
        self.num_free_blocks += 1

    def _unlink(self, block: KVCacheBlock) -> KVCacheBlock:
        before, after = block.prev_free, block.next_free
        before.next_free, after.prev_free = after, before
        block.prev_free = block.next_free = None
        self.num_free_blocks -= 1
        return block

    def popleft(self) -> KVCacheBlock:
        first = self._ring.next_free
        if first is self._ring:
            raise ValueError("popleft from an empty queue")
        return self._unlink(first)

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        if n > self.num_free_blocks:
            raise ValueError(f"popleft_n({n}) with {self.num_free_blocks} free blocks")
        taken = []
        for _ in range(n):
            taken.append(self._unlink(self._ring.next_free))
        return taken

    def remove(self, block: KVCacheBlock) -> None:
        if block.next_free is None:
            raise RuntimeError(f"remove: block {block.block_id} is not queued")
        self._unlink(block)

    def append(self, block: KVCacheBlock) -> None:
        if block.next_free is not None:
            raise RuntimeError(f"append: block {block.block_id} is queued already")
        self._insert_last(block)

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        todo = tuple(blocks)
        for block in todo:
            if block.next_free is not None:
                raise RuntimeError(f"append_n: block {block.block_id} is queued already")
        for block in todo:
            self._insert_last(block)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        return list(self)


@dataclass(eq=False, slots=True)
class BlockPool:
    num_blocks: int
    enable_caching: bool = True
    block_size: int = 1
    blocks: list[KVCacheBlock] = field(init=False, repr=False)
    null_block: KVCacheBlock = field(init=False, repr=False)
    free_block_queue: FreeKVCacheBlockQueue = field(init=False, repr=False)
    cached_block_hash_to_block: dict[Hashable, dict[int, KVCacheBlock]] = field(
        init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_blocks < 1:
            raise ValueError("num_blocks must be positive")
        self.blocks = [KVCacheBlock(i, self.block_size) for i in range(self.num_blocks)]
        self.null_block, *others = self.blocks
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(others)

    def get_num_free_blocks(self) -> int:
        return len(self.free_block_queue)

    def get_usage(self) -> float:
        usable = self.num_blocks - 1
        return (usable - len(self.free_block_queue)) / usable if usable else 0.0

    def get_new_blocks(self, n: int) -> list[KVCacheBlock]:
        taken = self.free_block_queue.popleft_n(n)      # raises ValueError before anything is taken
        for block in taken:
            self._maybe_evict(block)
            block.ref_cnt = 1
        return taken

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        for block in blocks:
            if block is self.null_block:
                continue
            if not block.ref_cnt:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks: Iterable[KVCacheBlock]) -> None:
        real = [block for block in blocks if block is not self.null_block]
        if not all(block.ref_cnt for block in real):
            raise ValueError("double free")
        for block in real:
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                self.free_block_queue.append(block)

    def cache_full_blocks(self, blocks: Sequence[KVCacheBlock], hashes: Sequence[Hashable]) -> None:
        if not self.enable_caching:
            return
        index = self.cached_block_hash_to_block
        for block, block_hash in zip(blocks, hashes):
            if block is not self.null_block and block.block_hash is None:
                block.block_hash = block_hash
                if block_hash not in index:
                    index[block_hash] = {}
                index[block_hash][block.block_id] = block

    def get_cached_block(self, block_hash: Hashable) -> KVCacheBlock | None:
        for block in self.cached_block_hash_to_block.get(block_hash, {}).values():
            return block
        return None

    def _maybe_evict(self, block: KVCacheBlock) -> bool:
        if block.block_hash is None:
            return False
        peers = self.cached_block_hash_to_block.get(block.block_hash, {})
        if peers.pop(block.block_id, None) is None:
            return False
        if not peers:
            del self.cached_block_hash_to_block[block.block_hash]
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        ids = tuple(block_ids)
        if any(not 0 <= i < self.num_blocks for i in ids):
            raise ValueError("block id out of range")
        for i in ids:
            self._maybe_evict(self.blocks[i])

    def reset_prefix_cache(self) -> bool:
        if any(block.ref_cnt for block in self.blocks if block is not self.null_block):
            return False
        self.cached_block_hash_to_block = {}
        for block in self.blocks:
            block.reset_hash()
        return True

    def fork_block(self, block: KVCacheBlock) -> KVCacheBlock:
        if block is self.null_block or not block.ref_cnt:
            raise ValueError("fork of a block without users")
        if block.ref_cnt == 1:
            self._maybe_evict(block)
            return block
        (copy,) = self.get_new_blocks(1)
        copy.payload = block.payload.copy()
        block.ref_cnt -= 1
        return copy


class MMFeature(NamedTuple):
    mm_hash: Hashable
    offset: int
    length: int

    def overlaps(self, start: int, end: int) -> bool:
        return self.offset < end and self.offset + self.length > start


def hash_block_tokens(parent_hash, token_ids, extra_keys=None) -> int:
    text = repr((parent_hash, tuple(token_ids), extra_keys)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")


def extra_keys(request: Request, start: int, end: int) -> tuple | None:
    lora = () if request.lora_name is None else (request.lora_name,)
    images = tuple((f.mm_hash, f.offset - start) for f in request.mm_features if f.overlaps(start, end))
    salt = (request.cache_salt,) if start == 0 and request.cache_salt is not None else ()
    return lora + images + salt or None


@dataclass(eq=False, slots=True)
class Request:
    request_id: str
    token_ids: list[int] = field(repr=False)
    block_size: int
    lora_name: str | None = field(default=None, kw_only=True)
    cache_salt: str | None = field(default=None, kw_only=True)
    mm_features: Sequence = field(default=(), kw_only=True)
    skip_reading_prefix_cache: bool = field(default=False, kw_only=True)
    num_computed_tokens: int = field(default=0, init=False)
    block_hashes: list = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.token_ids)
        self.mm_features = tuple(MMFeature(*item) for item in self.mm_features)
        self._hash_full_blocks()

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    def append_token_ids(self, token_ids: Iterable[int]) -> None:
        self.token_ids += token_ids
        self._hash_full_blocks()

    def _hash_full_blocks(self) -> None:
        parent = self.block_hashes[-1] if self.block_hashes else None
        for k in range(len(self.block_hashes), self.num_tokens // self.block_size):
            start, end = k * self.block_size, (k + 1) * self.block_size
            parent = hash_block_tokens(parent, self.token_ids[start:end], extra_keys(self, start, end))
            self.block_hashes.append(parent)


class KVCacheManager:
    __slots__ = ("block_pool", "block_size", "max_model_len", "req_to_blocks", "num_cached_block")

    def __init__(self, num_blocks: int, block_size: int, enable_caching: bool = True, max_model_len: int = 8192) -> None:
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.block_size = block_size
        self.max_model_len = max_model_len
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}
        self.num_cached_block: dict[str, int] = {}

    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        hits: list[KVCacheBlock] = []
        if self.block_pool.enable_caching and not request.skip_reading_prefix_cache:
            limit = (request.num_tokens - 1) // self.block_size
            for block_hash in request.block_hashes:
                if len(hits) == limit:
                    break
                block = self.block_pool.get_cached_block(block_hash)
                if block is None:
                    break
                hits.append(block)
        return hits, self.block_size * len(hits)

    def allocate_slots(self, request: Request, num_new_tokens: int,
                       new_computed_blocks: Sequence[KVCacheBlock] | None = None) -> list[KVCacheBlock] | None:
        if num_new_tokens < 1:
            raise ValueError("num_new_tokens < 1")
        pool, size, rid = self.block_pool, self.block_size, request.request_id
        hits = tuple(new_computed_blocks or ())
        old_table = self.req_to_blocks.get(rid, [])
        if hits and old_table:
            raise ValueError("hits for a running request")

        end = request.num_computed_tokens + len(hits) * size + num_new_tokens
        need = -(-min(end, self.max_model_len) // size)
        new = max(need - len(old_table) - len(hits), 0)
        if new + [block.ref_cnt for block in hits].count(0) > pool.get_num_free_blocks():
            return None

        pool.touch(hits)
        fresh = pool.get_new_blocks(new)
        table = [*old_table, *hits, *fresh]
        self.req_to_blocks[rid] = table
        if pool.enable_caching:
            first = self.num_cached_block.get(rid, len(hits))
            full = min(end, request.num_tokens) // size
            pool.cache_full_blocks(table[first:full], request.block_hashes[first:full])
            self.num_cached_block[rid] = max(first, full)
        return fresh

    def free(self, request: Request) -> None:
        self.block_pool.free_blocks(self.req_to_blocks.get(request.request_id, [])[::-1])
        self.req_to_blocks.pop(request.request_id, None)
        self.num_cached_block.pop(request.request_id, None)

    def write(self, request: Request, pos: int, token: int) -> KVCacheBlock:
        table = self.req_to_blocks.get(request.request_id, ())
        k, slot = divmod(pos, self.block_size)
        if not 0 <= k < len(table):
            raise ValueError(f"position {pos} has no slot")
        block = table[k] = self.block_pool.fork_block(table[k])
        block.payload[slot] = token
        return block
