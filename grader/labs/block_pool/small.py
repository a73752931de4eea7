"""The small engines of block_pool: a queue, pools with and without caching, managers with two requests."""

from __future__ import annotations

from itertools import permutations

from grader.labs.plain_lab import SmallLines, State
from reference.operation import Operation, written

_MOST_TOKENS = 6


def _looks_again(memory: object, state: State, operation: Operation) -> object | None:  # noqa: ARG001 - see `Remember`
    """After `get_all_free_blocks` the caller empties the result (`clear_lists`), and makes the call again."""
    wanted = {"looked": "clear_lists", "emptied": "get_all_free_blocks"}.get(str(memory), operation.name)
    if operation.name != wanted:
        return None
    if operation.name == "clear_lists" and memory == "looked":
        return "emptied"
    return "looked" if operation.name == "get_all_free_blocks" and memory == () else ()


_BLOCKS = range(4)
_QUEUE = SmallLines(
    opening="queue 4 [2,0]",
    lines=(
        *("get_all_free_blocks", "clear_lists", "popleft"),
        *(f"popleft_n {count}" for count in range(6)),
        *(f"{call} {block}" for call in ("remove", "append") for block in _BLOCKS),
        *(f"append_n {written(some)}" for count in (0, 1, 2) for some in permutations(_BLOCKS, count)),
        *("append_n [3,1,0]", "append_n [0,1,2,3]"),
    ),
    most=3000,
    remember=_looks_again,
)

_OF_A_POOL = (
    *("clear_lists", "get_num_free_blocks", "get_usage", "reset_prefix_cache"),
    *(f"get_new_blocks {count}" for count in range(4)),
    *(f"touch {blocks}" for blocks in ("[]", "[1]", "[2]", "[2,1]", "[1,1]", "[0,2]")),
    *(f"free_blocks {blocks}" for blocks in ("[1]", "[2]", "[1,2]", "[2,1]", "[0,1]")),
    *(f"free_iterator {blocks}" for blocks in ("[1,2]", "[2]")),
    *(f"cache_full_blocks {pairs}" for pairs in ('[1] ["A"]', '[2] ["A"]', '[1] ["B"]', '[2,0,1] ["B","A","A"]')),
    *("get_cached_block A", "get_cached_block B"),
    *(f"maybe_evict {block}" for block in range(3)),
    *(f"evict_blocks {ids}" for ids in ("[1]", "[2]", "[2,1]", "[1,3]", "[-1]")),
    *(f"fork_block {block}" for block in range(3)),
)


def _few_users(memory: object, state: State, operation: Operation) -> object | None:
    """Do not touch a block that has two users already."""
    touched = operation.arguments[0] if operation.name == "touch" else ()
    assert isinstance(touched, tuple)
    return None if any(state["ref"][block] == 2 for block in touched) else memory


_POOL = SmallLines(opening="pool 3 true 1", lines=_OF_A_POOL, most=2200, remember=_few_users)
_POOL_WITHOUT_CACHING = SmallLines(opening="pool 3 false 1", lines=_OF_A_POOL, most=1000, remember=_few_users)
_PAYLOADS = SmallLines(
    opening="pool 4 true 2",
    lines=(
        *("get_new_blocks 1", "touch [1]", "touch [2]", "free_blocks [1]", "free_blocks [2]", "free_blocks [3]"),
        *('cache_full_blocks [1] ["A"]', "maybe_evict 1", "evict_blocks [2]", "reset_prefix_cache"),
        *("set_payload 1 [5,6]", "set_payload 2 [7,8]", "fork_block 1", "fork_block 2"),
    ),
    most=1200,
    remember=_few_users,
)


def _few_tokens(memory: object, state: State, operation: Operation) -> object | None:
    """Do `new` only for a name without a request, other calls only for existing requests, and keep requests short."""
    request = operation.arguments[0] if operation.arguments else None
    if request not in ("a", "b"):
        return memory
    known = state["requests"].get(request)
    if (operation.name in ("new", "new_with")) is (known is not None):
        return None
    if operation.name != "append_tokens":
        return memory
    _, tokens = operation.arguments
    assert isinstance(tokens, tuple)
    return None if known[0] + len(tokens) > _MOST_TOKENS else memory


def _manager(opening: str, *, most: int) -> SmallLines:
    """Return an engine with two requests whose texts begin with equal tokens."""
    of_each = ("get_computed_blocks", "free", "preempt", "keys")
    return SmallLines(
        opening=opening,
        lines=(
            "clear_lists",
            *("new a [1,2,3,4]", "new b [1,2,3]", "new b [1,2,4,4]"),
            *(f"{call} {request}" for request in "ab" for call in of_each),
            *("append_tokens a [3]", "append_tokens b [4]", "append_tokens b [3,4,4]"),
            *(f"admit {request} {tokens}" for request in "ab" for tokens in (1, 4)),
            *(f"step {request} {tokens}" for request in "ab" for tokens in (1, 3)),
            *(f"write {request} {position} 90" for request in "ab" for position in (-1, 0, 3)),
            *("evict_blocks [1]", "evict_blocks [2]", "reset_prefix_cache", "get_cached_block h1.2"),
        ),
        most=most,
        remember=_few_tokens,
    )


_EVICTED = SmallLines(
    opening="mgr 6 2 true 99",
    lines=(
        *("new a [1,2,3,4,5,6,7]", "admit a 7", "preempt a", "get_computed_blocks a"),
        *("evict_blocks [1]", "evict_blocks [2]", "evict_blocks [3]"),
    ),
    most=400,
    remember=_few_tokens,
)
"""Shows the hits of a request after any of its blocks was evicted."""
_ITEMS = ('["p",0,2]', '["p",2,2]', '["p",0,3]', '["p",0,1],["q",2,1]')
_COMING_BACK = SmallLines(
    opening="mgr 4 2 true 99",
    lines=(
        *("new a [1,2,3]", "new b [5,6,7,8]", "admit a 2", "admit a 3", "admit b 4"),
        *("free a", "free b", "preempt a", "evict_blocks [1]"),
    ),
    most=900,
    remember=_few_tokens,
)
_EXTRAS = (
    *("null null [] true", '"x" null [] false', 'null "s" [] false', '"x" "s" [["p",0,2]] false'),
    *(f"null null [{items}] false" for items in _ITEMS),
)
_WITH_EXTRAS = SmallLines(
    opening="mgr 6 2 true 99",
    lines=(
        *(f"new_with {request} [1,2,3,4,5] {extras}" for request in "ab" for extras in _EXTRAS),
        *(f"{call} {request}" for request in "ab" for call in ("keys", "get_computed_blocks", "free")),
        *("append_tokens a [5]", "admit a 5", "admit b 1", "step b 4"),
    ),
    most=800,
    remember=_few_tokens,
)
_CHAINS = ("[[1,2]]", "[[1],[2]]", "[[12]]", "[[1,2],[3]]", "[[1],[2,3]]", "[[2,1]]")
_HASHES = SmallLines(
    opening="mgr 2 1 true 99", lines=[f"same_hash {first} {second}" for first in _CHAINS for second in _CHAINS], most=1
)

SMALL = (
    _QUEUE,
    _POOL,
    _POOL_WITHOUT_CACHING,
    _PAYLOADS,
    _manager("mgr 4 2 true 99", most=1500),
    _manager("mgr 5 2 true 6", most=1000),
    _manager("mgr 4 1 true 99", most=700),
    _manager("mgr 4 2 false 99", most=700),
    _COMING_BACK,
    _EVICTED,
    _WITH_EXTRAS,
    _HASHES,
)
