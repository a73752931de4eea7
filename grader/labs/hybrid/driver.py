"""How the calls of the hybrid assignment are made, and what is read of a submission after each.

The pool and the requests are from the given module, so the driver reads queue, counts and index itself. Blocks are
recognised by identity. Sizes are lists of [type,bytes], because their order matters. The driver keeps the result of
`match` and passes it to the next `admit`: so `admit` is judged from what the program itself had found.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from typing import Annotated, Any

import block_pool
import hybrid as submission


class World:
    """The objects of the test program that calls a submission, and what it remembers."""

    def __init__(self) -> None:
        self.pool: Any = None
        self.manager: Any = None
        self.allocator: Any = None
        self.numbers: dict[int, int] = {}  # of the pool's blocks, by identity
        self.settings: list[Any] = []  # number of blocks, groups, whether caching is on
        self.requests: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}
        self.looked: list[Any] = []  # request, hits and tokens of a match just before
        self.lent: list[tuple[Any, Any]] = []  # lists and dicts of the last call, those of a function with a copy
        self.spoils = False  # whether they, and what came back, are emptied after each call

    def begin(self) -> None:
        """Begin a call; the call before it may have raised."""
        self.empty_lent()
        self.lent.clear()
        self.looked = []

    def lend(self, value: Any, *, stays: bool = False) -> Any:
        """Remember an argument of a call, to empty it afterwards, or (`stays`) to see whether it stays the same."""
        self.lent.append((value, _copied(value) if stays else None))
        return value

    def lend_copy(self, value: Any) -> Any:
        return self.lend(_copied(value), stays=True)

    def empty_lent(self) -> None:
        for value, _ in self.lent if self.spoils else ():
            _emptied(value)

    def remember(self, request: Any, result: Any) -> None:
        """Keep the result of get_computed_blocks for admit; a result of another form counts as nothing found."""
        try:
            hits, tokens = result
            self.looked = [request.request_id, _like(hits, [_like(blocks, blocks) for blocks in hits]), tokens + 0]
        except Exception:
            self.looked = [request.request_id, [[] for _ in self.settings[1]], 0]

    def numbers_of(self, groups: Any) -> list[list[Any]]:
        """Return the ids of blocks in groups; "?" for an object that is not a block of the pool."""
        return [[self.numbers.get(id(block), "?") for block in blocks] for blocks in groups]

    def spoil(self, value: Any) -> None:
        """Empty the arguments and the reply of a call, if the case says that the caller spoils them."""
        self.empty_lent()
        if self.spoils:
            _emptied(value)


def _like(value: Any, items: Any) -> Any:
    """Return the items as a tuple or a deque if `value` is one, else as a list."""
    return type(value)(items) if type(value) in (tuple, deque) else list(items)


def _copied(value: Any) -> Any:
    """Return a deep copy in which lists and tuples are lists."""
    if isinstance(value, list | tuple | deque):
        return [_copied(item) for item in value]
    return {key: _copied(item) for key, item in value.items()} if isinstance(value, dict) else value


def _emptied(value: Any) -> None:
    """Empty a list or dict, and all lists and dicts in it."""
    if isinstance(value, list | tuple | deque | dict):
        for item in value.values() if isinstance(value, dict) else value:
            _emptied(item)
        if not isinstance(value, tuple):
            value.clear()


def _new_blocks(world: World, value: Any) -> Any:
    if value is None:
        return None
    try:
        return world.numbers_of(value)
    finally:
        world.spoil(value)


def _hits_and_tokens(world: World, value: Any) -> list[Any]:
    try:
        return [world.numbers_of(value[0]), value[1]]
    finally:
        world.spoil(value)


def _as_lists(world: World, value: Any) -> Any:
    return _copied(value)


def _tables(world: World) -> dict[str, Any]:
    of_requests = world.manager.req_to_blocks.items() if world.manager is not None else ()
    read = {name: world.numbers_of(tables) for name, tables in of_requests}
    return {name: tables for name, tables in read.items() if any(tables)}


def _geometry(allocator: Any) -> list[Any]:
    if allocator is None:
        return [0, 0, {}]
    return [allocator.large_page_bytes, allocator.num_large_pages, dict(allocator.ratio)]


def _slots(allocator: Any) -> dict[str, Any]:
    """Return the slots of each type. A slot must not be a list: a list is marked as {"list": ...}."""
    return {
        name: {small_id: {"list": slot} if isinstance(slot, list) else slot for small_id, slot in slots.items()}
        for name, slots in allocator.slots.items()
    }


Count = Annotated[int, 1, 999]
Groups = Annotated[list[Any], 'a list of [kind,block_size,window] such as [["full",2,0]]']
Tokens = Annotated[str, "tokens, each a letter, such as abba", r"[a-z]+"]
Natural = Annotated[int, 0, 9999]
Signed = Annotated[int, -9, 9999]
Request = Annotated[Any, "requests"]
Sizes = Annotated[list[Any], 'a list of [type,bytes] such as [["image",256]]']
Budget = Annotated[int, -9]
Needs = Annotated[list[Any], "for each request a list of [type,pages]"]
Weights = Annotated[list[Any] | None, "a list of [type,weight], or null"]
Layers = Annotated[list[Any], "a list of [name,[kind,block_size,window,token_bytes]]"]
Override = Annotated[int | None, "a number of blocks, or null"]
NumTokens = Annotated[int, 0]
Kinds = Annotated[list[Any], "a list of [kind,count,window]"]
BlockIds = Annotated[list[int], "a list of block ids such as [1,2]"]
New = Annotated[Any, _new_blocks]
Found = Annotated[Any, _hits_and_tokens]
Lists = Annotated[Any, _as_lists]


def manager(world: World, num_blocks: Count, groups: Groups, caching: bool) -> Annotated[None, ValueError]:
    """Part 1."""
    world.begin()
    pool = block_pool.BlockPool(num_blocks)
    world.manager = submission.HybridKVCacheManager(pool, world.lend([*map(tuple, groups)]), caching)
    world.pool, world.settings, world.requests = pool, [num_blocks, _copied(groups), caching], {}
    world.numbers = {id(block): number for number, block in enumerate(pool._blocks)}


def new(world: World, name: str, tokens: Tokens, encoder_tokens: Natural) -> None:
    world.begin()
    world.requests[name] = block_pool.Request(name, tokens, encoder_tokens)


def append(world: World, request: Request, tokens: Tokens) -> None:
    world.begin()
    request._tokens += tokens


def match(world: World, request: Request) -> Found:
    world.begin()
    result = world.manager.get_computed_blocks(request)
    world.remember(request, result)
    return result


def admit(world: World, request: Request, k: Signed) -> Annotated[New, None, ValueError]:
    _, hits, hit_tokens = world.looked
    world.begin()
    more = min(k, request.num_tokens - hit_tokens)
    blocks = world.manager.allocate_slots(request, more, world.lend(hits), hit_tokens)
    request._num_computed_tokens += 0 if blocks is None else hit_tokens + more
    return blocks


def step(world: World, request: Request, k: Signed) -> Annotated[New, None, ValueError]:
    world.begin()
    more = min(k, request.num_tokens - request.num_computed_tokens)
    blocks = world.manager.allocate_slots(request, more)
    request._num_computed_tokens += 0 if blocks is None else more
    return blocks


def free(world: World, request: Request) -> None:
    world.begin()
    world.manager.free(request)
    del world.requests[request.request_id]


def preempt(world: World, request: Request) -> None:
    world.begin()
    world.manager.free(request)
    request._num_computed_tokens = 0


def evict(world: World, block_ids: BlockIds) -> None:
    world.begin()
    for block in [world.pool._blocks[number] for number in block_ids]:
        if block in world.pool._queue:
            world.pool._forget(block)


def spoil(world: World) -> None:
    """Constraint 5."""
    world.begin()
    world.spoils = True


def lcm(world: World, sizes: Sizes, budget: Budget) -> Annotated[None, ValueError]:
    """Part 2."""
    world.begin()
    world.allocator = submission.LcmAllocator(world.lend(dict(sizes)), budget)
    world.sizes = dict(sizes)


def alloc(world: World, owner: str, page_type: str) -> Annotated[Any, None, ValueError]:
    world.begin()
    return world.allocator.alloc(owner, page_type)


def free_page(world: World, page_type: str, small_id: Signed) -> Annotated[None, ValueError]:
    world.begin()
    world.allocator.free(page_type, small_id)


def release(
    world: World, page_type: str, small_id: Signed, last_access: Natural, prefix_length: Natural
) -> Annotated[None, ValueError]:
    world.begin()
    world.allocator.release(page_type, small_id, last_access, prefix_length)


def reuse(world: World, page_type: str, small_id: Signed) -> Annotated[None, ValueError]:
    world.begin()
    world.allocator.reuse(page_type, small_id)


def remove(world: World, owner: str) -> None:
    world.begin()
    world.allocator.remove_request(owner)


def offset(world: World, page_type: str, small_id: Signed) -> Annotated[Any, ValueError]:
    world.begin()
    return world.allocator.byte_offset(page_type, small_id)


def fit(
    world: World, policy: str, budget: Budget, sizes: Sizes, needs: Needs, weights: Weights
) -> Annotated[Any, ValueError]:
    world.begin()
    needed = [dict(need) for need in needs]
    more = [world.lend(dict(weights), stays=True)] if weights else []
    given = [world.lend(dict(sizes), stays=True), world.lend(needed, stays=True), *more]
    result = submission.fit(policy, budget, *given)
    return list(result) if isinstance(result, tuple) else "no tuple"


def unify(world: World, layers: Layers) -> Annotated[Lists, NotImplementedError]:
    """Part 3."""
    world.begin()
    return submission.unify_page_size(world.lend_copy(layers))


def group(world: World, layers: Layers) -> Lists:
    world.begin()
    return submission.get_kv_cache_groups(world.lend_copy(layers))


def config(world: World, layers: Layers, available: int, override: Override) -> Annotated[Lists, NotImplementedError]:
    world.begin()
    more = [] if override is None else [override]
    return submission.get_kv_cache_config(world.lend_copy(layers), available, *more)


def waste(world: World, kinds: Kinds, num_tokens: NumTokens, encoder_tokens: Natural) -> Annotated[Any, ValueError]:
    world.begin()
    more = [encoder_tokens] if encoder_tokens else []
    share = submission.uniform_waste(world.lend_copy(kinds), num_tokens, *more)
    return f"{share.numerator}/{share.denominator}" if type(share) is Fraction else share


def read(world: World) -> dict[str, Any]:
    """Return a function for each part of the state that reads it: if one fails, the others still work."""
    return {
        "free": lambda: world.numbers_of([world.pool._queue])[0] if world.pool is not None else [],
        "ref": lambda: {
            block._block_id: block._ref_cnt
            for block in (world.pool._blocks if world.pool is not None else ())
            if block._ref_cnt
        },
        "index": lambda: {
            "/".join(map(str, key)): world.numbers_of([blocks])[0]
            for key, blocks in (world.pool._index.items() if world.pool is not None else ())
        },
        "tables": lambda: _tables(world),
        "geometry": lambda: _geometry(world.allocator),
        "free_large_pages": lambda: list(world.allocator.free_large_pages) if world.allocator is not None else [],
        "owner": lambda: dict(world.allocator.owner) if world.allocator is not None else {},
        "slots": lambda: _slots(world.allocator) if world.allocator is not None else {},
        "intact": lambda: world.spoils or all(copy is None or _copied(value) == copy for value, copy in world.lent),
        "settings": lambda: world.settings,
        "requests": lambda: {
            name: [request._tokens, request._num_encoder_tokens, request._num_computed_tokens]
            for name, request in world.requests.items()
        },
        "looked": lambda: world.looked and [world.looked[0], world.numbers_of(world.looked[1]), world.looked[2]],
        "sizes": lambda: world.sizes,
        "spoils": lambda: world.spoils,
    }
