"""The table of the hybrid assignment: how its calls are made, and what is read of a submission after each.

Pool and requests are the given ones, so queue, counts and index are ours to read; blocks are named by identity.
Sizes are lists of [type,bytes], because the order of types means something. `match` keeps what it returned: `admit`
hands it on, and is judged from what the program itself had found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from math import lcm
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import JsonValue, Number, Word
from grader.core.rubric import Facet
from grader.labs.hybrid.charts import charts
from grader.labs.python_lab import call, python_lab

COUNT, CACHING = Number("num_blocks", 1, 999), JsonValue("caching", "true or false")
GROUPS = JsonValue("groups", 'a list of [kind,block_size,window] such as [["full",2,0]]')
NAME, REQUEST, OWNER, TYPE, POLICY = map(Word, ("name", "request", "owner", "page_type", "policy"))
TOKENS = Word("tokens", "tokens, each a letter, such as abba", r"[a-z]+")
ENCODER, K, SMALL_ID = Number("encoder_tokens", 0, 9999), Number("k", -9, 9999), Number("small_id", -9, 9999)
BLOCK_IDS = JsonValue("block_ids", "a list of block ids such as [1,2]")
SIZES, BUDGET = JsonValue("sizes", 'a list of [type,bytes] such as [["image",256]]'), Number("budget", -9)
TIME, PREFIX = Number("last_access", 0, 9999), Number("prefix_length", 0, 9999)
NEEDS = JsonValue("needs", "for each request a list of [type,pages]")
WEIGHTS = JsonValue("weights", "a list of [type,weight], or null")
LAYERS = JsonValue("layers", "a list of [name,[kind,block_size,window,token_bytes]]")
AVAILABLE, OVERRIDE = Number("available"), JsonValue("override", "a number of blocks, or null")
NUM_TOKENS, KINDS = Number("num_tokens", 0), JsonValue("kinds", "a list of [kind,count,window]")


_ERROR, _OR_NONE = ("ValueError",), ("null", "ValueError")
OPERATIONS = {
    "manager": call(COUNT, GROUPS, CACHING, task="Part 1", refusals=_ERROR),
    "new": call(NAME, TOKENS, ENCODER, task="Part 1"),
    "append": call(REQUEST, TOKENS, task="Part 1"),
    "match": call(REQUEST, task="Part 1"),
    "admit": call(REQUEST, K, task="Part 1", refusals=_OR_NONE),
    "step": call(REQUEST, K, task="Part 1", refusals=_OR_NONE),
    "free": call(REQUEST, task="Part 1"),
    "preempt": call(REQUEST, task="Part 1"),
    "evict": call(BLOCK_IDS, task="Part 1"),
    "spoil": call(task="Constraint 5"),
    "lcm": call(SIZES, BUDGET, task="Part 2", refusals=_ERROR),
    "alloc": call(OWNER, TYPE, task="Part 2", refusals=_OR_NONE),
    "free_page": call(TYPE, SMALL_ID, task="Part 2", refusals=_ERROR),
    "release": call(TYPE, SMALL_ID, TIME, PREFIX, task="Part 2", refusals=_ERROR),
    "reuse": call(TYPE, SMALL_ID, task="Part 2", refusals=_ERROR),
    "remove": call(OWNER, task="Part 2"),
    "offset": call(TYPE, SMALL_ID, task="Part 2", refusals=_ERROR),
    "fit": call(POLICY, BUDGET, SIZES, NEEDS, WEIGHTS, task="Part 2", refusals=_ERROR),
    "unify": call(LAYERS, task="Part 3", refusals=("NotImplementedError",)),
    "group": call(LAYERS, task="Part 3"),
    "config": call(LAYERS, AVAILABLE, OVERRIDE, task="Part 3", refusals=("NotImplementedError",)),
    "waste": call(KINDS, NUM_TOKENS, ENCODER, task="Part 3", refusals=_ERROR),
}

SETUP = """\
from hybrid import HybridKVCacheManager, LcmAllocator, fit, get_kv_cache_config, get_kv_cache_groups
from hybrid import unify_page_size, uniform_waste
"""

DEFINES = '''\
from collections import deque
from fractions import Fraction

from block_pool import BlockPool, Request

pool = manager = allocator = None
numbers = {}  # of the pool's blocks, by identity
settings = []  # number of blocks, groups, whether caching is on
requests, sizes_given, looked = {}, {}, []  # looked: request, hits and tokens of a match just before
lent = []  # lists and dicts that went into the last call, those of a function each with a copy
spoils = False  # whether they, and what came back, are emptied after each call


def begin():
    """Before each call; the one before may have raised."""
    global looked
    empty_lent()
    lent.clear()
    looked = []


def lend(value, stays=False):
    """Remember what goes into a call, to empty it afterwards, or to see whether it stays as it is."""
    lent.append((value, copied(value) if stays else None))
    return value


def copied(value):
    """Lists and tuples as new lists, dicts as new dicts."""
    if isinstance(value, (list, tuple, deque)):
        return [copied(item) for item in value]
    return {key: copied(item) for key, item in value.items()} if isinstance(value, dict) else value


def emptied(value):
    """Empty a list or dict, and those in it."""
    if isinstance(value, (list, tuple, deque, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            emptied(item)
        if not isinstance(value, tuple):
            value.clear()


def empty_lent():
    for value, _ in lent if spoils else ():
        emptied(value)


def read(value, as_what):
    """The reply, and then what the caller does to it if lists are spoiled."""
    try:
        return as_what(value)
    finally:
        empty_lent()
        if spoils:
            emptied(value)


def numbers_of(groups):
    """The ids of the pool's very blocks."""
    return [[numbers.get(id(block), "?") for block in blocks] for blocks in groups]


def new_blocks(value):
    return None if value is None else read(value, numbers_of)


def hits_and_tokens(value):
    return read(value, lambda pair: [numbers_of(pair[0]), pair[1]])


def remembered(request, result):
    """What get_computed_blocks returned is for admit; what is no such thing counts as nothing found."""
    global looked
    try:
        hits, tokens = result
        looked = [request.request_id, [list(blocks) for blocks in hits], tokens + 0]
    except Exception:
        looked = [request.request_id, [[] for _ in settings[1]], 0]
    return result


def tables():
    of_requests = manager.req_to_blocks.items() if manager is not None else ()
    read = {name: numbers_of(tables) for name, tables in of_requests}
    return {name: tables for name, tables in read.items() if any(tables)}


def slots():
    """Of each type; a list in the place of a tuple is none."""
    of_types = allocator.slots.items() if allocator is not None else ()
    marked = lambda slot: {"list": slot} if isinstance(slot, list) else slot
    return {name: {small_id: marked(slot) for small_id, slot in of.items()} for name, of in of_types}
'''

_LAYERS = "lend(copied(layers), stays=True)"
CALLS = {
    "manager": "new_pool = BlockPool(num_blocks)\n"
    "manager = HybridKVCacheManager(new_pool, lend([tuple(group) for group in groups]), caching)\n"
    "pool, settings, requests = new_pool, [num_blocks, copied(groups), caching], {}\n"
    "numbers = {id(block): number for number, block in enumerate(new_pool._blocks)}",
    "new": "requests[name] = Request(name, tokens, encoder_tokens)",
    "append": "request._tokens += tokens",
    "match": "remembered(request, manager.get_computed_blocks(request))",
    "admit": "_, hits, hit_tokens = looked\nbegin()\nmore = min(k, request.num_tokens - hit_tokens)\n"
    "new = manager.allocate_slots(request, more, lend(hits), hit_tokens)\n"
    "request._num_computed_tokens += 0 if new is None else hit_tokens + more\nnew",
    "step": "more = min(k, request.num_tokens - request.num_computed_tokens)\n"
    "new = manager.allocate_slots(request, more)\n"
    "request._num_computed_tokens += 0 if new is None else more\nnew",
    "free": "manager.free(request)\ndel requests[request.request_id]",
    "preempt": "result = manager.free(request)\nrequest._num_computed_tokens = 0",
    "evict": "blocks = [pool._blocks[number] for number in block_ids]\n"
    "result = [pool._forget(block) for block in blocks if block in pool._queue]",
    "spoil": "spoils = True",
    "lcm": "allocator = LcmAllocator(lend(dict(sizes)), budget)\nsizes_given = dict(sizes)",
    "alloc": "allocator.alloc(owner, page_type)",
    "free_page": "result = allocator.free(page_type, small_id)",
    "release": "result = allocator.release(page_type, small_id, last_access, prefix_length)",
    "reuse": "result = allocator.reuse(page_type, small_id)",
    "remove": "result = allocator.remove_request(owner)",
    "offset": "allocator.byte_offset(page_type, small_id)",
    "fit": "needed = [dict(need) for need in needs]\n"
    "more = [lend(dict(weights), stays=True)] if weights else []\n"
    "result = fit(policy, budget, lend(dict(sizes), stays=True), lend(needed, stays=True), *more)\n"
    'list(result) if isinstance(result, tuple) else "no tuple"',
    "unify": f"unify_page_size({_LAYERS})",
    "group": f"get_kv_cache_groups({_LAYERS})",
    "config": f"more = [n for n in [override] if n is not None]\nget_kv_cache_config({_LAYERS}, available, *more)",
    "waste": "more = [n for n in [encoder_tokens] if n]\n"
    "share = uniform_waste(lend(copied(kinds), stays=True), num_tokens, *more)\n"
    'f"{share.numerator}/{share.denominator}" if type(share) is Fraction else share',
}
CALLS = {name: text if name == "admit" else f"begin()\n{text}" for name, text in CALLS.items()}
TAKES = {"request": "requests[{}]"}
GIVES = {
    "match": "hits_and_tokens",
    **dict.fromkeys(("admit", "step"), "new_blocks"),
    **dict.fromkeys(("unify", "group", "config"), "copied"),
}
READS = {
    "free": "numbers_of([pool._queue])[0] if pool is not None else []",
    "ref": "{block._block_id: block._ref_cnt for block in pool._blocks if block._ref_cnt} if pool is not None else {}",
    "index": "{'/'.join(map(str, key)): numbers_of([blocks])[0] for key, blocks in pool._index.items()}"
    " if pool is not None else {}",
    "tables": "tables()",
    "geometry": "[allocator.large_page_bytes, allocator.num_large_pages, dict(allocator.ratio)]"
    " if allocator is not None else [0, 0, {}]",
    "free_large_pages": "list(allocator.free_large_pages) if allocator is not None else []",
    "owner": "dict(allocator.owner) if allocator is not None else {}",
    "slots": "slots()",
    "intact": "spoils or all(copy is None or copied(value) == copy for value, copy in lent)",
    "settings": "settings",
    "requests": "{name: [r._tokens, r._num_encoder_tokens, r._num_computed_tokens] for name, r in requests.items()}",
    "looked": "looked and [looked[0], numbers_of(looked[1]), looked[2]]",
    "sizes": "sizes_given",
    "spoils": "spoils",
}

_ALLOCATE, _CONFIG = ("admit", "step"), ("config",)
FACETS = (
    Facet("fits", path="accepted", calls=_ALLOCATE),
    Facet("page", path="accepted", calls=("alloc",)),
    Facet("error", path="accepted"),
    Facet("hits", path="reply.0", calls=("match",)),
    Facet("tokens", path="reply.1", calls=("match",), title="tokens of the hit"),
    Facet("new", path="reply", calls=_ALLOCATE, title="new blocks"),
    Facet("page", path="reply", calls=("alloc",)),
    Facet("groups", path="reply.groups", calls=_CONFIG),
    Facet("groups", path="reply.tensors", calls=_CONFIG, title="tensors"),
    Facet("groups", path="reply.padding_layers", calls=_CONFIG, title="padding_layers"),
    Facet("sizes", path="reply", calls=_CONFIG),
    Facet("reply", path="reply"),
    Facet("tables", per="request", title="tables", absent="empty"),
    Facet("ref", per="block", title="ref_cnt", absent="0"),
    Facet("index", per="text/group", title="index"),
    Facet("free", title="free queue, head to tail"),
    Facet("geometry", title="large_page_bytes, num_large_pages, ratio"),
    Facet("free_large_pages"),
    Facet("owner", per="large page", title="owner"),
    Facet("slots", per="type", title="slots"),
    Facet("intact", title="arguments are as they were"),
)


def lab() -> Lab:
    """Return the lab."""
    return python_lab(
        globals(),
        "hybrid",
        "A hybrid memory allocator: layers of different kinds in one memory",
        "reference.hybrid:Hybrid",
        traces="grader.labs.hybrid.traces",
        circumstances="grader.labs.hybrid.situations:circumstances",
        given={"block_pool": Path(__file__).parent / "given" / "block_pool.py"},
        invariants=broken,
        charts=charts,
        smalls="grader.labs.hybrid.small:SMALL",
    )


_NULL = 0


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
    if state["settings"]:
        yield from _counts(state)
        yield from _hit(state)
        for name in sorted(state["tables"].keys() - state["requests"].keys()):
            yield f"request {name} is freed but its tables still have blocks"
        for name in state["requests"]:
            for group_id, table in enumerate(state["tables"].get(name) or [[] for _ in state["settings"][1]]):
                yield from _table(state, name, group_id, table)
    if state["sizes"]:
        yield from _large_pages(state)
        yield from _overlaps(state)


def _counts(state: dict[str, Any]) -> Iterator[str]:
    places = [(block, group) for tables in state["tables"].values() for group, t in enumerate(tables) for block in t]
    users = Counter(block for block, _ in places if block != _NULL)
    for block in sorted({*users, *map(int, state["ref"])}):
        count = state["ref"].get(str(block), 0)
        if count != users[block]:
            yield f"block {block} is in {users[block]} tables but its ref_cnt is {count}"
        groups = sorted({str(group) for other, group in places if other == block})
        if len(groups) > 1:
            yield f"block {block} is in tables of groups {' and '.join(groups)}"


def _hit(state: dict[str, Any]) -> Iterator[str]:
    """What `match` returned, if it was the last call."""
    if not state["looked"]:
        return
    name, _, tokens = state["looked"]
    alignment = lcm(*(block_size for _, block_size, _ in state["settings"][1]))
    if tokens % alignment:
        yield f"a hit of {tokens} tokens is no multiple of {alignment}"
    if tokens >= len(state["requests"][name][0]):
        yield f"a hit of {tokens} tokens leaves no token of request {name} to compute"


def _table(state: dict[str, Any], name: str, group_id: int, table: list[int]) -> Iterator[str]:
    kind, block_size, window = state["settings"][1][group_id]
    tokens, num_encoder_tokens, computed = state["requests"][name]
    where = f"request {name}, group {group_id}"
    if kind in ("full", "cross") and _NULL in table:
        yield f"{where}: a null in a {kind} table"
    elif _NULL in table[table.count(_NULL) :]:
        yield f"{where}: a null stands after a block"
    slots = num_encoder_tokens if kind == "cross" and computed else computed
    if len(table) != -(-slots // block_size):
        has = f"has {slots} encoder tokens" if kind == "cross" and computed else f"has computed {computed}"
        yield f"{where}: the table covers {len(table) * block_size} tokens, the request {has}"
    needed = max(0, {"sliding": computed - window + 1, "mamba": computed - 1}.get(kind, 0))
    for position, block in enumerate(table):
        end = (position + 1) * block_size
        if block == _NULL and kind in ("sliding", "mamba") and end > needed:
            yield f"{where}: position {position} is released although token {needed} is still needed"
        for key in (key for key, blocks in state["index"].items() if block in blocks):
            if key != f"{tokens[:end]}/{group_id}":
                yield f"{where}: block {block} stands at position {position} but is indexed as {key}"


def _large_pages(state: dict[str, Any]) -> Iterator[str]:
    number, ratio = state["geometry"][1:]
    cut = [
        (int(small_id) // ratio[page_type], page_type, slot)
        for page_type, slots in state["slots"].items()
        for small_id, slot in slots.items()
    ]
    for page in range(number):
        types = {page_type for other, page_type, _ in cut if other == page}
        is_free, is_owned = page in state["free_large_pages"], str(page) in state["owner"]
        if is_free and (types or is_owned):
            yield f"large page {page} is free and has {'slots' if types else 'an owner'}"
        if state["free_large_pages"].count(page) > 1:
            yield f"large page {page} is free twice"
        if not is_free and not is_owned:
            yield f"large page {page} is lost: neither free nor in use"
        if is_owned and all(slot == "empty" for other, _, slot in cut if other == page):
            yield f"large page {page} holds nothing but is not free"
        if len(types) > 1:
            yield f"large page {page} belongs to two types"


def _overlaps(state: dict[str, Any]) -> Iterator[str]:
    """Slots of different types that hold something in the same bytes."""
    ranges = [
        (page_type, int(small_id), int(small_id) * state["sizes"][page_type])
        for page_type, slots in state["slots"].items()
        for small_id, slot in slots.items()
        if slot != "empty"
    ]
    for (page_type, small_id, start), (other_type, other_id, other_start) in combinations(ranges, 2):
        end, other_end = start + state["sizes"][page_type], other_start + state["sizes"][other_type]
        if page_type != other_type and start < other_end and other_start < end:
            yield f"page {small_id} of type {page_type} overlaps page {other_id} of type {other_type}"
