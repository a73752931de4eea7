"""Part 1: the manager that gives a request one block table for each group, and the requests of a case."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Any

from reference.hybrid.kinds import KINDS, Kind, ceil
from reference.hybrid.pool import NULL_BLOCK, BlockPool
from reference.operation import Operation, Reply
from reference.oracle import CannotGoOn, Engine, Refused

Tables = list[list[int]]
Group = tuple[str, int, int]  # kind, block size, window


@dataclass
class Request:
    """A request with the attributes that the students' given module has."""

    tokens: str
    num_encoder_tokens: int
    computed: int = 0

    def block_hashes(self, block_size: int) -> list[str]:
        """Return a hash for each full block: the text of all tokens up to the block's end."""
        return [self.tokens[:end] for end in range(block_size, len(self.tokens) + 1, block_size)]


class Manager(Engine):
    """The handout's calls on a HybridKVCacheManager, and the operations of its caller."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool()
        self.settings: list[Any] = []  # number of blocks, groups, whether caching is on
        self.groups: list[Kind] = []
        self.tables: dict[str, Tables] = {}  # req_to_blocks
        self.requests: dict[str, Request] = {}
        self.looked: list[Any] = []  # request, hits and tokens of a `match` just before: `admit` passes them on

    def apply(self, operation: Operation) -> Reply:
        """Do one operation. The hits of a `match` can only be passed to an `admit` right after it."""
        if operation.name != "admit":
            self.looked = []
        return super().apply(operation)

    def manager(self, num_blocks: int, groups: tuple[Group, ...], caching: bool) -> None:
        """Do the handout's call `HybridKVCacheManager(BlockPool(num_blocks), groups, caching)`."""
        self.because("Part 1/groups")
        for kind, block_size, window in groups:
            if kind not in KINDS or block_size < 1:
                raise Refused("ValueError", "Part 1/groups")
            if kind == "sliding" and window < 2:
                raise Refused("ValueError", "Part 1/groups")
            if kind == "cross" and caching:
                raise Refused("ValueError", "Part 1/groups")
        self.pool = BlockPool(num_blocks)
        self.tables, self.requests = {}, {}
        self._configure([num_blocks, [list(group) for group in groups], caching])

    def _configure(self, settings: list[Any]) -> None:
        self.settings = settings
        self.groups = [KINDS[kind](block_size, window) for kind, block_size, window in settings[1]] if settings else []

    @property
    def _caching(self) -> bool:
        return bool(self.settings[2])

    @property
    def _alignment(self) -> int:
        """The least common multiple of the block sizes."""
        return lcm(*(group.block_size for group in self.groups))

    # Requests, which only the caller changes

    def new(self, name: str, tokens: str, num_encoder_tokens: int) -> None:
        """Create a request."""
        self.requests[name] = Request(tokens, num_encoder_tokens)

    def append(self, request: str, tokens: str) -> None:
        """Append tokens to a request."""
        self.requests[request].tokens += tokens

    def evict(self, blocks: tuple[int, ...]) -> None:
        """Remove the index entries of these blocks. Blocks in use keep theirs."""
        for block in blocks:
            if block in self.pool.free_queue:
                self.pool.forget(block)

    # The longest prefix

    def match(self, request: str) -> list[Any]:
        """Do the handout's call `get_computed_blocks(request)`."""
        known = self.requests[request]
        self.because("Part 1/hit" if self._caching else "Part 1/caching-off")
        hits: Tables = [[] for _ in self.groups]
        tokens = 0
        if self._caching:
            tokens = (len(known.tokens) - 1) // self._alignment * self._alignment
            while (prefix_hits := self._hits(known, tokens)) is None:
                tokens -= self._alignment
            hits = prefix_hits
        self.looked = [request, [list(blocks) for blocks in hits], tokens]
        return [hits, tokens]

    def _hits(self, request: Request, tokens: int) -> Tables | None:
        """Return the blocks of a hit of `tokens` tokens in each group, or None if a group lacks a needed block."""
        hits: Tables = []
        for group_id, group in enumerate(self.groups):
            hashes = request.block_hashes(group.block_size)
            blocks = [NULL_BLOCK] * (tokens // group.block_size)
            for position in group.needed(len(blocks)):
                block = self.pool.get_cached_block(hashes[position], group_id)
                if block is None:
                    return None
                blocks[position] = block
            hits.append(blocks)
        return hits

    # Room for tokens

    def admit(self, request: str, tokens: int) -> Tables:
        """Do the call `allocate_slots` with the hits of `match`, for at most `tokens` of the tokens that are left."""
        if self.looked[:1] != [request]:
            raise CannotGoOn(f"admit {request} needs match {request} just before it")
        (_, hits, hit_tokens), self.looked = self.looked, []
        left = len(self.requests[request].tokens) - hit_tokens
        return self._allocate(request, min(tokens, left), hits, hit_tokens)

    def step(self, request: str, tokens: int) -> Tables:
        """Do the call `allocate_slots` without hits, for at most `tokens` of the tokens that are left."""
        known = self.requests[request]
        left = len(known.tokens) - known.computed
        return self._allocate(request, min(tokens, left), [[] for _ in self.groups], 0)

    def _allocate(self, request: str, num_new_tokens: int, hits: Tables, num_new_computed_tokens: int) -> Tables:
        """Do the steps of the handout's call `allocate_slots`, in order. Return the new blocks of each group."""
        known = self.requests[request]
        if num_new_tokens < 1:
            raise Refused("ValueError", "Part 1/at-least-one")
        computed = known.computed + num_new_computed_tokens
        total = computed + num_new_tokens
        tables = self.tables.get(request) or [[] for _ in self.groups]
        self._release(tables, computed)
        needed = self._needed(known, total, tables, hits)
        sleeping = sum(block not in self.pool.ref for blocks in hits for block in blocks if block != NULL_BLOCK)
        if sum(needed) + sleeping > self.pool.num_free:
            raise Refused("null", "Part 1/check")
        self.because("Part 1/take")
        for table, blocks in zip(tables, hits, strict=True):
            self.pool.touch(blocks)
            table[:0] = blocks
        new = [self.pool.get_new_blocks(count) for count in needed]
        for table, blocks in zip(tables, new, strict=True):
            table.extend(blocks)
        self.tables[request] = tables
        if self._caching:
            self._cache(request, total)
        known.computed = total
        return new

    def _release(self, tables: Tables, computed: int) -> None:
        """Replace the blocks that no later token needs by the null block, and free them, the last position first."""
        for group, table in zip(self.groups, tables, strict=True):
            count = min(group.skipped(computed) // group.block_size, len(table))
            leaving = table[:count]
            table[:count] = [NULL_BLOCK] * count
            self.pool.free_blocks(leaving[::-1])

    def _needed(self, request: Request, total: int, tables: Tables, hits: Tables) -> list[int]:
        """Return how many new blocks each group needs."""
        needed = []
        for group, table, blocks in zip(self.groups, tables, hits, strict=True):
            slots = group.slots(total, request.num_encoder_tokens)
            needed.append(max(0, ceil(slots, group.block_size) - len(table) - len(blocks)))
        return needed

    def _cache(self, request: str, total: int) -> None:
        """Cache the blocks up to the last multiple of the alignment (all blocks up to there are full)."""
        end = total // self._alignment * self._alignment
        for group_id, (group, table) in enumerate(zip(self.groups, self.tables[request], strict=True)):
            count = end // group.block_size
            hashes = self.requests[request].block_hashes(group.block_size)
            self.pool.cache_full_blocks(table[:count], hashes[:count], group_id)

    # The end

    def free(self, request: str) -> None:
        """Do the handout's call `free(request)`, and forget the request."""
        self._free(request)
        del self.requests[request]

    def preempt(self, request: str) -> None:
        """Do the handout's call `free(request)`, and set the request's computed tokens to 0."""
        self._free(request)
        self.requests[request].computed = 0

    def _free(self, request: str) -> None:
        self.because("Part 1/free")
        for table in self.tables.pop(request, ()):
            self.pool.free_blocks(table[::-1])

    def state(self) -> dict[str, Any]:
        """Return what the pool and the tables show, and what the caller knows."""
        return {
            "free": list(self.pool.free_queue),
            "ref": {str(block): count for block, count in self.pool.ref.items()},
            "index": {key: list(blocks) for key, blocks in self.pool.index.items()},
            "tables": {name: [list(table) for table in tables] for name, tables in self.tables.items() if any(tables)},
            "settings": self.settings
            and [self.settings[0], [list(group) for group in self.settings[1]], self._caching],
            "requests": {
                name: [known.tokens, known.num_encoder_tokens, known.computed] for name, known in self.requests.items()
            },
            "looked": self.looked and [self.looked[0], [list(blocks) for blocks in self.looked[1]], self.looked[2]],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state. Raises `CannotGoOn` where a table has a block that is free."""
        self._configure(state["settings"])
        self.pool = BlockPool()
        self.pool.free_queue = list(state["free"])
        self.pool.ref = {int(block): count for block, count in state["ref"].items()}
        self.pool.index = {key: list(blocks) for key, blocks in state["index"].items()}
        self.tables = {name: [list(table) for table in tables] for name, tables in state["tables"].items()}
        for name, tables in self.tables.items():
            for block in (block for table in tables for block in table if block != NULL_BLOCK):
                if block not in self.pool.ref:
                    raise CannotGoOn(f"block {block} stands in a table of request {name} but is free")
        self.requests = {name: Request(*known) for name, known in state["requests"].items()}
        self.looked = list(state["looked"])
