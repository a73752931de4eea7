"""Tasks 5 and 6: the manager, which gives each request a table of blocks."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

from reference.block_pool.free_queue import Ids
from reference.block_pool.pool import Pool
from reference.block_pool.requests import Request, Text, extra_keys, hash_block_tokens
from reference.oracle import Refused

Hits = list[int]


class Manager(Pool):
    """The reference engine: a manager with its pool, and the requests of a case."""

    def __init__(self) -> None:
        super().__init__()
        self.block_size = 0
        self.max_model_len = 0
        self.tables: dict[str, list[int]] = {}  # req_to_blocks
        self.ncached: dict[str, int] = {}  # num_cached_block
        self.requests: dict[str, Request] = {}
        self.texts: dict[str, Text] = {}

    def mgr(self, num_blocks: int, block_size: int, caching: bool, max_model_len: int) -> None:
        """Do the handout's call `KVCacheManager(num_blocks, block_size, caching, max_model_len)`."""
        self.pool(num_blocks, caching, block_size)
        self.block_size, self.max_model_len = block_size, max_model_len

    # Task 4: hashes and requests

    def new(self, request: str, tokens: Ids) -> None:
        """Do the handout's call `Request(request, tokens, block_size)`."""
        self.new_with(request, tokens, None, None, (), skip=False)

    def new_with(
        self, request: str, tokens: Ids, lora: str | None, salt: str | None, features: tuple[Any, ...], skip: bool
    ) -> None:
        """Do the handout's call `Request(...)` with all arguments."""
        text = Text([], lora, salt, features, skip)
        self.texts[request], self.requests[request] = text, Request(num_tokens=0)
        self.append_tokens(request, tokens)

    def append_tokens(self, request: str, tokens: Ids) -> None:
        """Do the handout's call `request.append_token_ids(tokens)`."""
        text, known = self.texts[request], self.requests[request]
        self.because("Task 4/block_hashes")
        text.token_ids += tokens
        known.num_tokens += len(tokens)
        first_end = (len(known.block_hashes) + 1) * self.block_size
        for end in range(first_end, len(text.token_ids) + 1, self.block_size):
            start = end - self.block_size
            parent = known.block_hashes[-1] if known.block_hashes else None
            keys = extra_keys(text, start, end)
            known.block_hashes.append(hash_block_tokens(parent, text.token_ids[start:end], keys))

    def keys(self, request: str) -> list[Any]:
        """Return the extra keys of each full block."""
        text = self.texts[request]
        self.because("Task 4/extra_keys")
        starts = range(0, len(text.token_ids) // self.block_size * self.block_size, self.block_size)
        keys_of_blocks = [extra_keys(text, start, start + self.block_size) for start in starts]
        return [keys and [list(key) if isinstance(key, tuple) else key for key in keys] for keys in keys_of_blocks]

    def same_hash(self, chain: tuple[Ids, ...], other: tuple[Ids, ...]) -> bool:
        """Whether two chains of blocks, hashed with `hash_block_tokens`, end in equal hashes."""
        self.because("Task 4/hash_block_tokens")
        return chain == other

    # Task 5: the manager

    def get_computed_blocks(self, request: str) -> list[Any]:
        """Return the longest run of cached blocks from the front, and the number of its tokens."""
        hits = self.hits_of(request)
        return [hits, len(hits) * self.block_size]

    def hits_of(self, request: str) -> Hits:
        """Return the longest run of cached blocks from the front of a request."""
        self.because("Task 5/get_computed_blocks")
        known = self.requests[request]
        if not self.caching or self.texts[request].skip_reading_prefix_cache:
            self.because("Task 5/get_computed_blocks-skip")
            return []
        most = (known.num_tokens - 1) // self.block_size
        hits: Hits = []
        for hash_ in known.block_hashes:
            if hash_ not in self.index:
                break
            if len(hits) == most:
                self.because("Task 5/hit-cap")
                break
            hits.append(self.index[hash_][0])
        return hits

    def admit(self, request: str, num_new_tokens: int) -> list[Any]:
        """Do the calls `get_computed_blocks` and `allocate_slots` with the hits. Return the hits and the new blocks."""
        hits = self.hits_of(request)
        new = self.allocate_slots(request, num_new_tokens, hits)
        self._computed(request, len(hits) * self.block_size + num_new_tokens)
        return [hits, new]

    def step(self, request: str, num_new_tokens: int) -> list[int]:
        """Do the call `allocate_slots` without prefix cache hits. Return the new blocks."""
        new = self.allocate_slots(request, num_new_tokens, [])
        self._computed(request, num_new_tokens)
        return new

    def _computed(self, request: str, tokens: int) -> None:
        """Count `tokens` more tokens as computed, as the caller does; at most all tokens of the request."""
        known = self.requests[request]
        known.num_computed_tokens = min(known.num_computed_tokens + tokens, known.num_tokens)

    def allocate_slots(self, request: str, num_new_tokens: int, hits: Hits) -> list[int]:
        """Make room for tokens after the computed tokens and the hits; return the new blocks."""
        known, size = self.requests[request], self.block_size
        table = self.tables.get(request, [])
        if num_new_tokens < 1:
            raise Refused("ValueError", "Task 5/num_new_tokens")
        if hits and table:
            raise Refused("ValueError", "Task 5/hits-first")
        total = known.num_computed_tokens + len(hits) * size
        need = -(-min(total + num_new_tokens, self.max_model_len) // size)
        new = max(need - len(table) - len(hits), 0)
        revived = sum(self.ref[block] == 0 for block in hits)
        if new + revived > self.num_free:
            raise Refused("null", "Task 5/capacity")
        self.touch(tuple(hits))
        taken = self.get_new_blocks(new)
        self.because("Task 5/allocate_slots")
        self.tables[request] = [*table, *hits, *taken]
        if self.caching:
            full = min(total + num_new_tokens, known.num_tokens) // size
            self._cache(request, self.ncached.get(request, len(hits)), full)
        return taken

    def _cache(self, request: str, already: int, full: int) -> None:
        """Cache the blocks at positions `already` to `full` - 1 of a table."""
        positions = slice(already, max(already, full))
        self.cache_full_blocks(
            tuple(self.tables[request][positions]), tuple(self.requests[request].block_hashes[positions])
        )
        self.because("Task 5/caching")
        self.ncached[request] = max(already, full)

    def free(self, request: str) -> None:
        """Do the handout's call `free(request)`, and forget the request."""
        self.free_blocks_of(request)
        del self.requests[request], self.texts[request]

    def free_blocks_of(self, request: str) -> None:
        """Free the blocks of a request, the last first; forget its table and counter."""
        self.free_blocks(tuple(reversed(self.tables.pop(request, []))))
        self.because("Task 5/free")
        self.ncached.pop(request, None)

    def preempt(self, request: str) -> None:
        """Do the handout's call `free(request)`, and set the request's computed tokens to 0."""
        self.free_blocks_of(request)
        self.requests[request].num_computed_tokens = 0

    # Task 6: copy-on-write

    def write(self, request: str, position: int, token: int) -> int:
        """Store a token in a block that only this request uses: its own one, or a copy. Return the block."""
        table = self.tables.get(request, [])
        if position not in range(len(table) * self.block_size):
            raise Refused("ValueError", "Task 6/write-outside")
        place, offset = divmod(position, self.block_size)
        block = self.fork_block(table[place])
        self.because("Task 6/write")
        table[place] = block
        self.payload[block][offset] = token
        return block

    def state(self) -> dict[str, Any]:
        """Return what the attributes of the manager and of all requests show, and what the caller knows."""
        return {
            **super().state(),
            "tables": {request: list(table) for request, table in self.tables.items() if table},
            "ncached": {request: number for request, number in self.ncached.items() if number},
            "requests": {request: known.plain for request, known in self.requests.items()},
            "sizes": [self.block_size, self.max_model_len],
            "texts": repr({request: text.plain for request, text in self.texts.items()}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        super().restore(state)
        self.block_size, self.max_model_len = state["sizes"]
        self.tables = {request: list(table) for request, table in state["tables"].items()}
        self.ncached = dict(state["ncached"])
        self.requests = {
            request: Request(tokens, computed, list(hashes))
            for request, (tokens, computed, hashes) in state["requests"].items()
        }
        self.texts = {request: Text.of(plain) for request, plain in literal_eval(state["texts"]).items()}
