from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any, Hashable, Iterable, Iterator, Sequence


class KVCacheBlock:
    __slots__ = (
        "block_id", "ref_cnt", "block_hash", "is_null", "prev_free", "next_free", "payload", "owner",
    )

    def __init__(self, block_id: int, block_size: int = 1) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: Hashable = None
        self.is_null = False
        self.prev_free: KVCacheBlock | None = None
        self.next_free: KVCacheBlock | None = None
        self.payload = [0] * block_size
        self.owner: FreeKVCacheBlockQueue | None = None

    def reset_hash(self) -> None:
        self.block_hash = None

    def __repr__(self) -> str:
        return f"<block {self.block_id} refs={self.ref_cnt}>"


class FreeKVCacheBlockQueue:
    """Ring with one sentinel: ring.next_free is the first block, ring.prev_free the last one."""

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        ring = KVCacheBlock(-1)
        ring.prev_free = ring.next_free = ring
        self.fake_free_list_head = self.fake_free_list_tail = ring
        self.num_free_blocks = 0
        for b in blocks:
            self._link_last(b)

    def _link_last(self, b: KVCacheBlock) -> None:
        ring = self.fake_free_list_tail
        b.prev_free, b.next_free = ring.prev_free, ring
        ring.prev_free.next_free = b
        ring.prev_free = b
        b.owner = self
        self.num_free_blocks += 1

    def _unlink(self, b: KVCacheBlock) -> KVCacheBlock:
        b.prev_free.next_free = b.next_free
        b.next_free.prev_free = b.prev_free
        b.prev_free = b.next_free = None
        b.owner = None
        self.num_free_blocks -= 1
        return b

    def __iter__(self) -> Iterator[KVCacheBlock]:
        b = self.fake_free_list_head.next_free
        while b is not self.fake_free_list_tail:
            yield b
            b = b.next_free

    def popleft(self) -> KVCacheBlock:
        if not self.num_free_blocks:
            raise ValueError("queue is empty")
        return self._unlink(self.fake_free_list_head.next_free)

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        if self.num_free_blocks < n:
            raise ValueError(f"{n} blocks wanted, {self.num_free_blocks} there")
        return [self.popleft() for _ in range(n)]

    def remove(self, block: KVCacheBlock) -> None:
        if block.owner is not self:
            raise RuntimeError(f"{block} is not queued")
        self._unlink(block)

    def append(self, block: KVCacheBlock) -> None:
        self.append_n([block])

    def append_n(self, blocks: Iterable[KVCacheBlock]) -> None:
        todo = list(blocks)
        if any(b.owner is self for b in todo):
            raise RuntimeError("a block is queued already")
        for b in todo:
            self._link_last(b)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        return list(self)


class BlockPool:
    def __init__(self, num_blocks: int, enable_caching: bool = True, block_size: int = 1) -> None:
        if num_blocks <= 0:
            raise ValueError("num_blocks must be positive")
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(i, block_size) for i in range(num_blocks)]
        self.null_block, *others = self.blocks
        self.null_block.is_null = True
        self.free_block_queue = FreeKVCacheBlockQueue(others)
        self.cached_block_hash_to_block: dict[Hashable, dict[int, KVCacheBlock]] = {}

    # ---- users

    def get_new_blocks(self, n: int) -> list[KVCacheBlock]:
        fresh = self.free_block_queue.popleft_n(n)
        for b in fresh:
            self._maybe_evict(b)
            b.ref_cnt += 1
        return fresh

    def touch(self, blocks: Iterable[KVCacheBlock]) -> None:
        for b in blocks:
            if b is self.null_block:
                continue
            if not b.ref_cnt:
                self.free_block_queue.remove(b)
            b.ref_cnt += 1

    def free_blocks(self, blocks: Iterable[KVCacheBlock]) -> None:
        real = [b for b in blocks if b is not self.null_block]
        if any(b.ref_cnt <= 0 for b in real):
            raise ValueError("double free")
        for b in real:
            b.ref_cnt -= 1
        self.free_block_queue.append_n(b for b in real if not b.ref_cnt)

    def get_num_free_blocks(self) -> int:
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> float:
        n = len(self.blocks) - 1
        return (n - self.get_num_free_blocks()) / n if n else 0.0

    # ---- index

    def cache_full_blocks(self, blocks: Sequence[KVCacheBlock], hashes: Sequence[Hashable]) -> None:
        if self.enable_caching:
            for b, h in zip(blocks, hashes):
                if b is not self.null_block and b.block_hash is None:
                    b.block_hash = h
                    self.cached_block_hash_to_block.setdefault(h, {})[b.block_id] = b

    def get_cached_block(self, block_hash: Hashable) -> KVCacheBlock | None:
        same = self.cached_block_hash_to_block.get(block_hash, {})
        return next(iter(same.values()), None)

    def _maybe_evict(self, block: KVCacheBlock) -> bool:
        h = block.block_hash
        same = self.cached_block_hash_to_block.get(h, {})
        if h is None or same.get(block.block_id) is not block:
            return False
        same.pop(block.block_id)
        if not same:
            self.cached_block_hash_to_block.pop(h)
        block.reset_hash()
        return True

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        ids = list(block_ids)
        if not all(0 <= i < len(self.blocks) for i in ids):
            raise ValueError("block id out of range")
        for i in ids:
            self._maybe_evict(self.blocks[i])

    def reset_prefix_cache(self) -> bool:
        if self.get_num_free_blocks() < len(self.blocks) - 1:
            return False
        for b in self.blocks:
            b.reset_hash()
        self.cached_block_hash_to_block = {}
        return True

    # ---- copy on write

    def fork_block(self, block: KVCacheBlock) -> KVCacheBlock:
        if block is self.null_block or not block.ref_cnt:
            raise ValueError("nobody can write here")
        if block.ref_cnt > 1:
            (mine,) = self.get_new_blocks(1)
            mine.payload[:] = block.payload
            block.ref_cnt -= 1
            return mine
        self._maybe_evict(block)
        return block


def hash_block_tokens(parent_hash: Hashable, token_ids: Sequence[int], extra_keys: tuple | None = None) -> str:
    text = repr((parent_hash, list(token_ids), extra_keys))
    return hashlib.sha256(text.encode()).hexdigest()


def extra_keys(request: "Request", start: int, end: int) -> tuple | None:
    lora = (request.lora_name,) if request.lora_name else ()
    mm = tuple((h, off - start) for h, off, n in request.mm_features if off < end and start < off + n)
    salt = (request.cache_salt,) if request.cache_salt and start == 0 else ()
    return lora + mm + salt or None


class Request:
    def __init__(
        self,
        request_id: str,
        token_ids: Sequence[int],
        block_size: int,
        *,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        mm_features: Iterable[tuple[Any, int, int]] = (),
        skip_reading_prefix_cache: bool = False,
    ) -> None:
        self.request_id = request_id
        self.block_size = block_size
        self.lora_name = lora_name
        self.cache_salt = cache_salt
        self.mm_features = tuple(mm_features)
        self.skip_reading_prefix_cache = skip_reading_prefix_cache
        self.num_computed_tokens = 0
        self.block_hashes: list[Hashable] = []
        self._tokens = list(token_ids)
        self._extend_hashes()

    @property
    def num_tokens(self) -> int:
        return len(self._tokens)

    def append_token_ids(self, token_ids: Iterable[int]) -> None:
        self._tokens += token_ids
        self._extend_hashes()

    def _extend_hashes(self) -> None:
        while (len(self.block_hashes) + 1) * self.block_size <= len(self._tokens):
            start = len(self.block_hashes) * self.block_size
            end = start + self.block_size
            parent = self.block_hashes[-1] if self.block_hashes else None
            self.block_hashes.append(
                hash_block_tokens(parent, self._tokens[start:end], extra_keys(self, start, end))
            )


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class KVCacheManager:
    def __init__(
        self, num_blocks: int, block_size: int, enable_caching: bool = True, max_model_len: int = 8192
    ) -> None:
        self.block_size = block_size
        self.enable_caching = enable_caching
        self.max_model_len = max_model_len
        self.block_pool = BlockPool(num_blocks, enable_caching, block_size)
        self.req_to_blocks: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)
        self.num_cached_block: dict[str, int] = {}

    def get_computed_blocks(self, request: Request) -> tuple[list[KVCacheBlock], int]:
        hits: list[KVCacheBlock] = []
        if self.enable_caching and not request.skip_reading_prefix_cache:
            limit = (request.num_tokens - 1) // self.block_size
            while len(hits) < limit:
                b = self.block_pool.get_cached_block(request.block_hashes[len(hits)])
                if b is None:
                    break
                hits.append(b)
        return hits, self.block_size * len(hits)

    def allocate_slots(
        self, request: Request, num_new_tokens: int, new_computed_blocks: Sequence[KVCacheBlock] | None = None
    ) -> list[KVCacheBlock] | None:
        hits = new_computed_blocks or []
        held = len(self.req_to_blocks[request.request_id])
        if num_new_tokens <= 0:
            raise ValueError("no tokens to make room for")
        if hits and held:
            raise ValueError("request has blocks already")

        end = request.num_computed_tokens + len(hits) * self.block_size + num_new_tokens
        need = ceil_div(min(end, self.max_model_len), self.block_size)
        new = max(need - held - len(hits), 0)
        taken = new + sum(b.ref_cnt == 0 for b in hits)
        if taken > self.block_pool.get_num_free_blocks():
            return None

        self.block_pool.touch(hits)
        fresh = self.block_pool.get_new_blocks(new)
        self.req_to_blocks[request.request_id] += [*hits, *fresh]
        if self.enable_caching:
            self._cache_blocks(request, end, len(hits))
        return fresh

    def _cache_blocks(self, request: Request, end: int, num_hits: int) -> None:
        rid = request.request_id
        first = self.num_cached_block.get(rid, num_hits)
        full = min(end, request.num_tokens) // self.block_size
        if full > first:
            self.block_pool.cache_full_blocks(
                self.req_to_blocks[rid][first:full], request.block_hashes[first:full]
            )
        self.num_cached_block[rid] = max(first, full)

    def free(self, request: Request) -> None:
        rid = request.request_id
        self.block_pool.free_blocks(reversed(self.req_to_blocks[rid]))
        del self.req_to_blocks[rid]

    def write(self, request: Request, pos: int, token: int) -> KVCacheBlock:
        table = self.req_to_blocks[request.request_id]
        if not 0 <= pos < len(table) * self.block_size:
            raise ValueError(f"no slot for position {pos}")
        k, i = divmod(pos, self.block_size)
        table[k] = self.block_pool.fork_block(table[k])
        table[k].payload[i] = token
        return table[k]
