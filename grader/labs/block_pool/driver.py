"""Makes the calls of the block pool assignment, and reads the state of a submission after each.

All objects are recognised by identity: a block is named by its index in the first list of blocks, not by `block_id`.
Hash values never leave a submission's process: each is named by the contents of the first block that had it, so equal
values have one name.
"""

from __future__ import annotations

from itertools import pairwise
from operator import is_
from typing import Annotated, Any

import block_pool as submission


class World:
    """The objects of the test program that calls a submission, and what it remembers."""

    def __init__(self) -> None:
        self.queue: Any = None
        self.pool: Any = None
        self.manager: Any = None
        self.result: Any = None  # of the last call
        self.blocks: list[Any] = []  # the first list of blocks of the queue or pool
        self.places: dict[int, int] = {}  # from id(block) to the block's index in `blocks`
        self.requests: dict[str, Any] = {}
        self.facts: dict[str, list[Any]] = {}  # of each request: tokens, and LoRA name etc. if it has any
        self.size, self.max_len, self.caching = 0, 0, True  # of a manager
        self.names: dict[Any, str] = {}  # by hash value: what it was made of, "h1.1/2.2" for two blocks of tokens
        self.engines: list[tuple[Any, ...]] = []  # all queues, each but the newest with the `places` of its blocks
        self.lent: list[tuple[Any, list[Any]]] = []  # the last two lists passed to calls, each with a copy

    def keep(self, result: Any) -> Any:
        self.result = result
        return result

    def begin(self, blocks: Any, queue: Any) -> None:
        """Remember the blocks of a new queue or pool, and forget the requests of the earlier manager."""
        if self.engines:
            self.engines[-1] = (*self.engines[-1], self.places)
        self.engines.append((queue,))
        self.blocks = list(blocks)
        self.places = {id(block): place for place, block in enumerate(self.blocks)}
        self.requests, self.facts, self.names = {}, {}, {}

    def ids(self, blocks: Any) -> list[Any]:
        return [self.places.get(id(block), "?") for block in blocks]

    def lend(self, items: Any) -> Any:
        """Remember a list that goes into a call, to see later whether it was changed."""
        self.lent.append((items, list(items)))
        del self.lent[:-2]
        return items

    def advance(self, request: Any, num_new_tokens: int, hits: Any, new: Any) -> None:
        """Do what the caller does after allocate_slots: count the tokens that have slots as computed."""
        if new is not None:
            total = request.num_computed_tokens + len(hits) * self.size + num_new_tokens
            request.num_computed_tokens = min(total, request.num_tokens)

    def name_of(self, request: Any) -> str:
        return next(name for name, other in self.requests.items() if other is request)

    def forget(self, request: Any) -> None:
        self.name_hashes()
        name = self.name_of(request)
        del self.requests[name], self.facts[name]

    def name_hashes(self) -> None:
        """Name the hash values of all requests that have no name yet."""
        for name, request in self.requests.items():
            for number, value in enumerate(request.block_hashes):
                if value not in self.names:
                    start, end = number * self.size, (number + 1) * self.size
                    made_of = ".".join(map(str, self.facts[name][0][start:end]))
                    if len(self.facts[name]) > 1:
                        keys = submission.extra_keys(request, start, end)
                        made_of += f"+{keys}" if keys is not None else ""
                    parent = f"{self.names[request.block_hashes[number - 1]]}/" if number else "h"
                    same = sum(other.rstrip("'") == parent + made_of for other in self.names.values())
                    self.names[value] = parent + made_of + "'" * same

    def hash_of(self, word: str) -> Any:
        """Return the hash value with this name, or the word itself."""
        self.name_hashes()
        return next((value for value, name in self.names.items() if name == word), word)

    def hash_name(self, value: Any) -> str | None:
        """Return the name of a hash value. Without a manager a hash is a word of the case."""
        if value is None:
            return None
        if self.manager is None:
            return value if isinstance(value, str) else "?"
        return self.names.get(value, "?")

    def the_queue(self) -> Any:
        return self.pool.free_block_queue if self.pool is not None else self.queue

    def pool_blocks(self) -> list[Any]:
        return self.blocks if self.pool is not None else []

    def of_manager(self, name: str) -> Any:
        return getattr(self.manager, name).items() if self.manager is not None else ()


def _id(world: World, block: Any) -> Any:
    return None if block is None else world.ids([block])[0]


def _ids(world: World, blocks: Any) -> Any:
    return world.ids(blocks) if isinstance(blocks, list | tuple) else _id(world, blocks)


def _hits_and_tokens(world: World, value: Any) -> list[Any]:
    """Return the result of get_computed_blocks with ids for blocks."""
    hits, tokens = value
    return [world.ids(hits), tokens]


def _hits_and_new(world: World, value: Any) -> list[Any] | None:
    """Return hits and new blocks as ids; None if nothing was allocated."""
    hits, new = value
    return None if new is None else [world.ids(hits), world.ids(new)]


def _last_hash(blocks: Any) -> Any:
    """Return the hash of the last of these blocks of tokens."""
    parent = None
    for tokens in blocks:
        parent = submission.hash_block_tokens(parent, tokens)
    return parent


def _walk(queue: Any, places: dict[int, int], *, back: bool = False) -> list[Any]:
    """Return the blocks of a queue along one kind of link; stop after more steps than there are blocks."""
    if queue is None:
        return []
    first, last, link = "fake_free_list_head", "fake_free_list_tail", "next_free"
    if back:
        first, last, link = last, first, "prev_free"
    steps: list[Any] = []
    block, end = getattr(getattr(queue, first), link), getattr(queue, last)
    while block is not end and block is not None and len(steps) < len(places) + 2:
        steps.append(places.get(id(block), "?"))
        block = getattr(block, link)
    return steps if block is not None else [*steps, None]


def _loose_blocks(world: World) -> list[int]:
    """Return the blocks outside the queue that have a link."""
    linked = [b for b, block in enumerate(world.blocks) if block.prev_free is not None or block.next_free is not None]
    inside = _walk(world.the_queue(), world.places) if linked else ()
    return [b for b in linked if b not in inside]


def _index_of(world: World) -> dict[Any, list[Any]]:
    """Return for each hash in the index the ids of its blocks, "?" for a wrong one."""
    read: dict[Any, list[Any]] = {}
    if world.pool is None:
        return read
    for value, blocks in world.pool.cached_block_hash_to_block.items():
        pairs = [(key, world.places.get(id(block))) for key, block in blocks.items()]
        read[world.hash_name(value)] = [place if place == key else "?" for key, place in pairs]
    return read


def _ids_of_the_pool(world: World) -> Any:
    """Return True if pool.blocks are the first blocks in the order of their ids, else the ids in pool.blocks."""
    if world.pool is None:
        return True
    numbers = [block.block_id for block in world.pool.blocks]
    right = numbers == list(range(len(world.blocks))) and all(map(is_, world.pool.blocks, world.blocks))
    return right or numbers


def _shared_payloads(blocks: list[Any]) -> list[list[int]]:
    """Return the pairs of blocks that share one payload list."""
    payloads = [block.payload for block in blocks]
    if len(set(map(id, payloads))) == len(payloads):
        return []
    pairs = [(a, b) for a in range(len(payloads)) for b in range(a)]
    return [[b, a] for a, b in pairs if payloads[a] is payloads[b]]


def _requests_now(world: World) -> dict[str, Any]:
    """Return for each request its number of tokens, of computed tokens, and the names of its hashes."""
    world.name_hashes()
    return {
        name: [r.num_tokens, r.num_computed_tokens, [world.hash_name(value) for value in r.block_hashes]]
        for name, r in world.requests.items()
    }


Count = Annotated[int, 0, 99]
Size = Annotated[int, 1, 99]
MaxLen = Annotated[int, 1, 9999]
NumTokens = Annotated[int, 0, 9999]
Position = Annotated[int, -99, 9999]
Block = Annotated[Any, "blocks", 0, 99]
Request = Annotated[Any, "requests"]
Hash = Annotated[str, "the name of a hash such as A or h1.1/2.2", r"[A-Za-z][A-Za-z0-9./]*"]
Words = Annotated[list[str], 'a list of words such as ["A","B"]']
Name = Annotated[str | None, 'a name such as "x", or null']
Features = Annotated[list[Any], 'a list of items such as [["p",2,3]]: hash, offset, length']
Blocks = Annotated[list[list[int]], "a list of lists of tokens"]
Id = Annotated[Any, _id]
Ids = Annotated[Any, _ids]
Found = Annotated[Any, _hits_and_tokens]
Admitted = Annotated[Any, _hits_and_new]


def queue(world: World, count: Count, order: list[int]) -> None:
    """Task 1."""
    blocks = [submission.KVCacheBlock(number) for number in range(count)]
    world.queue = submission.FreeKVCacheBlockQueue(world.lend([blocks[number] for number in order]))
    world.pool = world.manager = None
    world.size, world.max_len, world.caching = 0, 0, True
    world.begin(blocks, world.queue)


def popleft(world: World) -> Annotated[Id, ValueError]:
    return world.keep(world.queue.popleft())


def popleft_n(world: World, n: Count) -> Annotated[Ids, ValueError]:
    return world.keep(world.queue.popleft_n(n))


def remove(world: World, block: Block) -> Annotated[None, RuntimeError]:
    world.result = world.queue.remove(block)


def append(world: World, block: Block) -> Annotated[None, RuntimeError]:
    world.result = world.queue.append(block)


def append_n(world: World, blocks: list[Block]) -> Annotated[None, RuntimeError]:
    world.result = world.queue.append_n(world.lend(blocks))


def get_all_free_blocks(world: World) -> Ids:
    return world.keep(world.queue.get_all_free_blocks())


def pool(world: World, count: Count, caching: bool, size: Size) -> Annotated[None, ValueError]:
    """Task 2."""
    world.pool = submission.BlockPool(count, caching, size)
    world.manager = None
    world.size, world.max_len, world.caching = 0, 0, caching
    world.begin(world.pool.blocks, world.pool.free_block_queue)


def get_new_blocks(world: World, n: Count) -> Annotated[Ids, ValueError]:
    return world.keep(world.pool.get_new_blocks(n))


def touch(world: World, blocks: list[Block]) -> None:
    world.result = world.pool.touch(world.lend(blocks))


def free_blocks(world: World, blocks: list[Block]) -> Annotated[None, ValueError]:
    world.result = world.pool.free_blocks(world.lend(blocks))


def free_iterator(world: World, blocks: list[Block]) -> Annotated[None, ValueError]:
    world.result = world.pool.free_blocks(iter(blocks))


def get_num_free_blocks(world: World) -> Any:
    return world.pool.get_num_free_blocks()


def get_usage(world: World) -> Any:
    return round(float(world.pool.get_usage()), 9)


def cache_full_blocks(world: World, blocks: list[Block], words: Words) -> None:
    """Task 3."""
    world.result = world.pool.cache_full_blocks(world.lend(blocks), world.lend(words))


def get_cached_block(world: World, word: Hash) -> Annotated[Id, None]:
    return world.keep(world.pool.get_cached_block(world.hash_of(word)))


def maybe_evict(world: World, block: Block) -> Any:
    return world.pool._maybe_evict(block)


def evict_blocks(world: World, block_ids: list[int]) -> Annotated[None, ValueError]:
    world.result = world.pool.evict_blocks(world.lend(block_ids))


def reset_prefix_cache(world: World) -> Any:
    return world.pool.reset_prefix_cache()


def fork_block(world: World, block: Block) -> Annotated[Id, ValueError]:
    """Task 6."""
    return world.keep(world.pool.fork_block(block))


def set_payload(world: World, block: Block, values: list[int]) -> None:
    """Task 1."""
    block.payload[:] = values


def mgr(world: World, count: Count, size: Size, caching: bool, max_len: MaxLen) -> None:
    """Task 5."""
    world.manager = submission.KVCacheManager(count, size, caching, max_len)
    world.pool = getattr(world.manager, "block_pool", None)
    world.size, world.max_len, world.caching = size, max_len, caching
    world.begin(getattr(world.pool, "blocks", ()), getattr(world.pool, "free_block_queue", None))


def new(world: World, name: str, tokens: list[int]) -> None:
    """Task 4."""
    new_with(world, name, tokens, None, None, [], False)


def new_with(
    world: World, name: str, tokens: list[int], lora: Name, salt: Name, features: Features, skip: bool
) -> None:
    world.facts[name] = [list(tokens)]
    if lora or salt or features or skip:
        world.facts[name] += [lora, salt, [list(item) for item in features], skip]
    items = [tuple(item) for item in features]
    extras = {"lora_name": lora, "cache_salt": salt, "mm_features": items, "skip_reading_prefix_cache": skip}
    given = {key: value for key, value in extras.items() if value}
    world.requests[name] = submission.Request(name, world.lend(tokens), world.size, **given)


def append_tokens(world: World, request: Request, tokens: list[int]) -> None:
    request.append_token_ids(world.lend(tokens))
    world.facts[world.name_of(request)][0].extend(tokens)


def keys(world: World, request: Request) -> Any:
    size, count = world.size, len(world.facts[world.name_of(request)][0])
    return [submission.extra_keys(request, start, start + size) for start in range(0, count - size + 1, size)]


def same_hash(world: World, one: Blocks, other: Blocks) -> bool:
    return bool(_last_hash(map(list, one)) == _last_hash(map(tuple, other)))


def get_computed_blocks(world: World, request: Request) -> Found:
    """Task 5."""
    return world.keep(world.manager.get_computed_blocks(request))


def admit(world: World, request: Request, num_tokens: NumTokens) -> Annotated[Admitted, None, ValueError]:
    hits, _ = world.manager.get_computed_blocks(request)
    new_blocks = world.manager.allocate_slots(request, num_tokens, world.lend(hits))
    world.advance(request, num_tokens, hits, new_blocks)
    return world.keep([hits, new_blocks])


def step(world: World, request: Request, num_tokens: NumTokens) -> Annotated[Ids, None, ValueError]:
    world.result = world.manager.allocate_slots(request, num_tokens)
    world.advance(request, num_tokens, [], world.result)
    return world.result


def free(world: World, request: Request) -> None:
    world.manager.free(request)
    world.forget(request)


def preempt(world: World, request: Request) -> None:
    world.result = world.manager.free(request)
    request.num_computed_tokens = 0


def write(world: World, request: Request, position: Position, token: NumTokens) -> Annotated[Id, ValueError]:
    """Task 6."""
    return world.keep(world.manager.write(request, position, token))


def clear_lists(world: World) -> None:
    """Section 2."""
    result = world.result
    for items in [result, *(result if isinstance(result, list | tuple) else ()), *(pair[0] for pair in world.lent)]:
        if isinstance(items, list):
            items.clear()
    world.lent.clear()


def _stand_in(world: World, source: str) -> None:
    """Replace the program's queue by a right one, so that only the pool is judged."""
    for block in world.blocks:
        block.prev_free = block.next_free = None
    names: dict[str, Any] = {}
    exec(source, names)
    world.pool.free_block_queue = names["FreeKVCacheBlockQueue"](world.blocks[1:])


def _become(world: World, *lists: list[Any]) -> None:
    """Set the program's attributes to a state, so that only the calls that follow are judged."""
    free_ids, counts, words, payloads, indexed, tables, ncached, computed = lists
    used, blocks = world.the_queue(), world.blocks
    for block in blocks:
        block.prev_free = block.next_free = None
    linked = [used.fake_free_list_head, *(blocks[number] for number in free_ids), used.fake_free_list_tail]
    for left, right in pairwise(linked):
        left.next_free, right.prev_free = right, left
    used.num_free_blocks = len(free_ids)
    for block, count, word, values in zip(world.pool_blocks(), counts, words, payloads, strict=False):
        block.payload[:] = values
        block.ref_cnt, block.block_hash = count or 0, None if word is None else world.hash_of(word)
    if world.pool is not None:
        index = world.pool.cached_block_hash_to_block
        index.clear()
        for word, numbers in indexed:
            index[world.hash_of(word)] = {number: blocks[number] for number in numbers}
    if world.manager is not None:
        world.manager.num_cached_block = dict(ncached)
        world.manager.req_to_blocks = {name: [blocks[number] for number in table] for name, table in tables}
        for name in world.requests.keys() - dict(computed):
            world.forget(world.requests[name])
        for name, tokens in computed:
            world.requests[name].num_computed_tokens = tokens


def read(world: World) -> dict[str, Any]:
    """Return a function for each part of the state that reads it: if one fails, the others still work."""
    return {
        "requests": lambda: _requests_now(world),
        "tables": lambda: {name: world.ids(table) for name, table in world.of_manager("req_to_blocks") if len(table)},
        "ncached": lambda: {name: count for name, count in world.of_manager("num_cached_block") if count != 0},
        "free": lambda: _walk(world.the_queue(), world.places),
        "back": lambda: _walk(world.the_queue(), world.places, back=True),
        "num_free": lambda: world.the_queue().num_free_blocks if world.blocks else 0,
        "loose": lambda: _loose_blocks(world),
        "earlier": lambda: [_walk(*earlier) for earlier in world.engines[:-1]],
        "args": lambda: all(len(items) == len(copy) and all(map(is_, items, copy)) for items, copy in world.lent),
        "null": lambda: [place for place, block in enumerate(world.pool_blocks()) if block.is_null],
        "ref": lambda: [block.ref_cnt if place else None for place, block in enumerate(world.pool_blocks())],
        "hash": lambda: [world.hash_name(block.block_hash) for block in world.pool_blocks()],
        "payload": lambda: [block.payload for block in world.pool_blocks()],
        "shared": lambda: _shared_payloads(world.pool_blocks()),
        "index": lambda: _index_of(world),
        "ids": lambda: _ids_of_the_pool(world),
        "num_blocks": lambda: len(world.blocks),
        "caching": lambda: world.caching,
        "sizes": lambda: [world.size, world.max_len],
        "texts": lambda: repr(world.facts),
    }
