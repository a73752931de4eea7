"""The table of the block pool assignment: how its calls are made, and what is read of a submission after each.

All objects are named by identity: a block is its place among the blocks of the start, whatever its `block_id` says.
Hash values never leave a submission's process: each is named by what it was made of when it first was in some request,
so equal values have one name. `texts`, `sizes`, `caching` and `num_blocks` are what the caller knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import JsonValue, Number, Word
from grader.core.rubric import Facet
from grader.labs.block_pool.mend import STAND_IN, mend
from grader.labs.python_lab import call, python_lab

_MOST = 99
COUNT, N, SIZE = Number("count", 0, _MOST), Number("n", 0, _MOST), Number("size", 1, _MOST)
MAX_LEN, TOKENS = Number("max_len", 1, 9999), Number("num_tokens", 0, 9999)
POSITION, TOKEN = Number("position", -_MOST, 9999), Number("token", 0, 9999)
BLOCK, BLOCKS = Number("block", 0, _MOST), JsonValue("blocks", "a list of block ids such as [1,2]")
IDS, ORDER = (
    JsonValue("block_ids", "a list of ids such as [1,2]"),
    JsonValue("order", "a list of block ids such as [1,2]"),
)
CACHING, SKIP = JsonValue("caching", "true or false"), JsonValue("skip", "true or false")
HASH = Word("word", "the name of a hash such as A or h1.1/2.2", r"[A-Za-z][A-Za-z0-9./]*")
HASHES = JsonValue("words", 'a list of words such as ["A","B"]')
NAME, REQUEST = Word("name"), Word("request")
LIST = JsonValue("tokens", "a list of tokens such as [5,6,7]")
LORA, SALT = JsonValue("lora", 'a name such as "x", or null'), JsonValue("salt", 'a salt such as "s", or null')
FEATURES = JsonValue("features", 'a list of items such as [["p",2,3]]: hash, offset, length')
ONE, OTHER = JsonValue("one", "a list of lists of tokens"), JsonValue("other", "a list of lists of tokens")
VALUES = JsonValue("values", "a list of numbers, one for each token of a block")

_VALUE_ERROR, _RUNTIME_ERROR = ("ValueError",), ("RuntimeError",)


OPERATIONS = {
    "queue": call(COUNT, ORDER, task="Task 1"),
    "popleft": call(task="Task 1", refusals=_VALUE_ERROR),
    "popleft_n": call(N, task="Task 1", refusals=_VALUE_ERROR),
    "remove": call(BLOCK, task="Task 1", refusals=_RUNTIME_ERROR),
    "append": call(BLOCK, task="Task 1", refusals=_RUNTIME_ERROR),
    "append_n": call(BLOCKS, task="Task 1", refusals=_RUNTIME_ERROR),
    "get_all_free_blocks": call(task="Task 1"),
    "pool": call(COUNT, CACHING, SIZE, task="Task 2", refusals=_VALUE_ERROR),
    "get_new_blocks": call(N, task="Task 2", refusals=_VALUE_ERROR),
    "touch": call(BLOCKS, task="Task 2"),
    "free_blocks": call(BLOCKS, task="Task 2", refusals=_VALUE_ERROR),
    "free_iterator": call(BLOCKS, task="Task 2", refusals=_VALUE_ERROR),
    "get_num_free_blocks": call(task="Task 2"),
    "get_usage": call(task="Task 2"),
    "cache_full_blocks": call(BLOCKS, HASHES, task="Task 3"),
    "get_cached_block": call(HASH, task="Task 3", refusals=("null",)),
    "maybe_evict": call(BLOCK, task="Task 3"),
    "evict_blocks": call(IDS, task="Task 3", refusals=_VALUE_ERROR),
    "reset_prefix_cache": call(task="Task 3"),
    "fork_block": call(BLOCK, task="Task 6", refusals=_VALUE_ERROR),
    "set_payload": call(BLOCK, VALUES, task="Task 1"),
    "mgr": call(COUNT, SIZE, CACHING, MAX_LEN, task="Task 5"),
    "new": call(NAME, LIST, task="Task 4"),
    "new_with": call(NAME, LIST, LORA, SALT, FEATURES, SKIP, task="Task 4"),
    "append_tokens": call(REQUEST, LIST, task="Task 4"),
    "keys": call(REQUEST, task="Task 4"),
    "same_hash": call(ONE, OTHER, task="Task 4"),
    "get_computed_blocks": call(REQUEST, task="Task 5"),
    "admit": call(REQUEST, TOKENS, task="Task 5", refusals=("null", "ValueError")),
    "step": call(REQUEST, TOKENS, task="Task 5", refusals=("null", "ValueError")),
    "free": call(REQUEST, task="Task 5"),
    "preempt": call(REQUEST, task="Task 5"),
    "write": call(REQUEST, POSITION, TOKEN, task="Task 6", refusals=_VALUE_ERROR),
    "clear_lists": call(task="Section 2"),
}

_STATE = "free ref hashes payload indexed tables ncached computed"
MENDING = {"stand_in": call(JsonValue("source", "a text"), task="")}
MENDING |= {"become": call(*(JsonValue(name, "a list") for name in _STATE.split()), task="")}

SETUP = """\
from block_pool import BlockPool, FreeKVCacheBlockQueue, KVCacheBlock, KVCacheManager, Request
from block_pool import extra_keys, hash_block_tokens
"""

DEFINES = '''\
from operator import is_

queue = pool = manager = result = None
all_blocks, places = [], {}  # the blocks of the start, and their places by identity
requests, block_size = {}, 0
settings = [0, 0, True]  # block size and maximal length of a manager, and whether caching is on
request_facts = {}  # of each request its tokens; where there are any, LoRA name, salt, items, whether it skips reading
names = {}  # of each hash value what it was made of when it first was in a request: "h1.1/2.2" for two blocks of tokens
engines = []  # the queues that were made, those before the last one with the places of their blocks
lent = []  # the lists that went into the last call, each with a copy


def begin(blocks, queue):
    """Remember the blocks of a new queue or pool, and forget the requests of the manager before."""
    global all_blocks, places, requests, request_facts, names
    if engines:
        engines[-1] = (*engines[-1], places)
    engines.append((queue,))
    all_blocks = list(blocks)
    places = {id(block): place for place, block in enumerate(all_blocks)}
    requests, request_facts, names = {}, {}, {}
    return all_blocks


def place(block):
    return None if block is None else places.get(id(block), "?")


def ids(blocks):
    return [places.get(id(block), "?") for block in blocks]


def lend(items):
    """Remember a list that goes into a call, to see later whether it is as before."""
    lent.append((items, list(items)))
    del lent[:-2]
    return items


def new_request(name, tokens, lora=None, salt=None, features=(), skip=False):
    request_facts[name] = [list(tokens)]
    if lora or salt or features or skip:
        request_facts[name] += [lora, salt, [list(item) for item in features], skip]
    extras = {"lora_name": lora, "cache_salt": salt, "mm_features": [tuple(item) for item in features]}
    if skip:
        extras["skip_reading_prefix_cache"] = True
    return Request(name, lend(tokens), block_size, **{key: value for key, value in extras.items() if value})


def append_tokens(request, tokens):
    request.append_token_ids(lend(tokens))
    request_facts[name_of(request)][0].extend(tokens)


def name_of(request):
    return next(name for name, other in requests.items() if other is request)


def after(request, num_new_tokens, hits, new):
    """What the caller does after allocate_slots."""
    if new is not None:
        total = request.num_computed_tokens + len(hits) * block_size + num_new_tokens
        request.num_computed_tokens = min(total, request.num_tokens)


def forget(request):
    name_hashes()
    name = name_of(request)
    del requests[name], request_facts[name]


def clear_lists(result):
    """Empty the lists that went in and out of the last call."""
    for items in [result, *(result if isinstance(result, (list, tuple)) else ()), *(pair[0] for pair in lent)]:
        if isinstance(items, list):
            items.clear()
    lent.clear()


def chain(blocks):
    """The hash of the last of these blocks of tokens."""
    parent = None
    for tokens in blocks:
        parent = hash_block_tokens(parent, tokens)
    return parent


def full_blocks(request):
    count = len(request_facts[name_of(request)][0])
    return [(start, start + block_size) for start in range(0, count - block_size + 1, block_size)]


def the_queue():
    return pool.free_block_queue if pool is not None else queue


def pool_blocks():
    return all_blocks if pool is not None else []


def walk(queue, places, first="fake_free_list_head", link="next_free", last="fake_free_list_tail"):
    """The blocks of a queue along one kind of link; it stops after more steps than there are blocks."""
    if queue is None:
        return []
    steps, block, end = [], getattr(getattr(queue, first), link), getattr(queue, last)
    while block is not end and block is not None and len(steps) < len(places) + 2:
        steps.append(places.get(id(block), "?"))
        block = getattr(block, link)
    return steps if block is not None else [*steps, None]


def loose_blocks():
    """The blocks outside the queue of which a link is set."""
    linked = [b for b, block in enumerate(all_blocks) if block.prev_free is not None or block.next_free is not None]
    inside = walk(the_queue(), places) if linked else ()
    return [b for b in linked if b not in inside]


def lists_unchanged():
    return all(len(items) == len(copy) and all(map(is_, items, copy)) for items, copy in lent)


def name_hashes():
    """Name the hash values that are new in some request."""
    for name, request in requests.items():
        for number, value in enumerate(request.block_hashes):
            if value not in names:
                start, end = number * block_size, (number + 1) * block_size
                made_of = ".".join(map(str, request_facts[name][0][start:end]))
                if len(request_facts[name]) > 1:
                    keys = extra_keys(request, start, end)
                    made_of += f"+{keys}" if keys is not None else ""
                parent = f"{names[request.block_hashes[number - 1]]}/" if number else "h"
                same = sum(other.rstrip("'") == parent + made_of for other in names.values())
                names[value] = parent + made_of + "'" * same


def hash_name(value):
    if value is None:
        return None
    if manager is None:  # the words of the case
        return value if isinstance(value, str) else "?"
    return names.get(value, "?")


def hash_of(word):
    """The hash value of a name."""
    name_hashes()
    return next((value for value, name in names.items() if name == word), word)


def index():
    read = {}
    if pool is None:
        return read
    for value, blocks in pool.cached_block_hash_to_block.items():
        pairs = [(key, places.get(id(block))) for key, block in blocks.items()]
        read[hash_name(value)] = [place if place == key else "?" for key, place in pairs]
    return read


def ids_of_the_pool():
    """True, or the ids where pool.blocks are not the blocks of the start in the order of their ids."""
    if pool is None:
        return True
    numbers = [block.block_id for block in pool.blocks]
    right = numbers == list(range(len(all_blocks))) and all(map(is_, pool.blocks, all_blocks))
    return right or numbers


def shared_payloads():
    payloads = [block.payload for block in pool_blocks()]
    if len(set(map(id, payloads))) == len(payloads):
        return []
    pairs = [(a, b) for a in range(len(payloads)) for b in range(a)]
    return [[b, a] for a, b in pairs if payloads[a] is payloads[b]]


def stand_in(source):
    """Put a right queue into the place that the handout names, so that the pool is judged alone."""
    for block in all_blocks:
        block.prev_free = block.next_free = None
    exec(source, names := {"Any": object})
    pool.free_block_queue = names["FreeKVCacheBlockQueue"](all_blocks[1:])


def become(free, ref, hashes, payload, indexed, tables, ncached, computed):
    """Put a state into the attributes that the handout names, so that the calls that follow are judged alone."""
    queue = the_queue()
    for block in all_blocks:
        block.prev_free = block.next_free = None
    linked = [queue.fake_free_list_head, *(all_blocks[number] for number in free), queue.fake_free_list_tail]
    for left, right in zip(linked, linked[1:]):
        left.next_free, right.prev_free = right, left
    queue.num_free_blocks = len(free)
    for block, count, word, values in zip(pool_blocks(), ref, hashes, payload):
        block.payload[:] = values
        block.ref_cnt, block.block_hash = count or 0, None if word is None else hash_of(word)
    if pool is not None:
        pool.cached_block_hash_to_block.clear()
        for word, numbers in indexed:
            pool.cached_block_hash_to_block[hash_of(word)] = {number: all_blocks[number] for number in numbers}
    if manager is not None:
        manager.num_cached_block = dict(ncached)
        manager.req_to_blocks = {name: [all_blocks[number] for number in table] for name, table in tables}
        for name in requests.keys() - dict(computed):
            forget(requests[name])
        for name, tokens in computed:
            requests[name].num_computed_tokens = tokens


def of_manager(name):
    return getattr(manager, name).items() if manager is not None else ()


def requests_now():
    name_hashes()
    return {
        name: [request.num_tokens, request.num_computed_tokens, [hash_name(value) for value in request.block_hashes]]
        for name, request in requests.items()
    }


def hits_and_tokens(value):
    hits, tokens = value
    return [ids(hits), tokens]


def hits_and_new(value):
    hits, new = value
    return None if new is None else [ids(hits), ids(new)]


def list_of_blocks(value):
    return None if value is None else ids(value) if isinstance(value, (list, tuple)) else "?"
'''

CALLS = {
    "queue": "blocks = [KVCacheBlock(number) for number in range(count)]\n"
    "queue = FreeKVCacheBlockQueue(lend([blocks[number] for number in order]))\n"
    "pool = manager = None\nsettings = [0, 0, True]\nall_blocks = begin(blocks, queue)",
    "popleft": "result = queue.popleft()\nresult",
    "popleft_n": "result = queue.popleft_n(n)\nresult",
    "remove": "result = queue.remove(block)",
    "append": "result = queue.append(block)",
    "append_n": "result = queue.append_n(lend(blocks))",
    "get_all_free_blocks": "result = queue.get_all_free_blocks()\nresult",
    "pool": "pool = BlockPool(count, caching, size)\nmanager = None\nsettings = [0, 0, caching]\n"
    "all_blocks = begin(pool.blocks, pool.free_block_queue)",
    "get_new_blocks": "result = pool.get_new_blocks(n)\nresult",
    "touch": "result = pool.touch(lend(blocks))",
    "free_blocks": "result = pool.free_blocks(lend(blocks))",
    "free_iterator": "result = pool.free_blocks(iter(blocks))",
    "get_num_free_blocks": "pool.get_num_free_blocks()",
    "get_usage": "round(float(pool.get_usage()), 9)",
    "cache_full_blocks": "result = pool.cache_full_blocks(lend(blocks), lend(words))",
    "get_cached_block": "result = pool.get_cached_block(hash_of(word))\nresult",
    "maybe_evict": "pool._maybe_evict(block)",
    "evict_blocks": "result = pool.evict_blocks(lend(block_ids))",
    "reset_prefix_cache": "pool.reset_prefix_cache()",
    "fork_block": "result = pool.fork_block(block)\nresult",
    "set_payload": "block.payload[:] = values",
    "mgr": "manager = KVCacheManager(count, size, caching, max_len)\n"
    "pool, block_size, settings = getattr(manager, 'block_pool', None), size, [size, max_len, caching]\n"
    "all_blocks = begin(getattr(pool, 'blocks', ()), getattr(pool, 'free_block_queue', None))",
    "new": "requests[name] = new_request(name, tokens)",
    "new_with": "requests[name] = new_request(name, tokens, lora, salt, features, skip)",
    "append_tokens": "append_tokens(request, tokens)",
    "keys": "[extra_keys(request, start, end) for start, end in full_blocks(request)]",
    "same_hash": "bool(chain(map(list, one)) == chain(map(tuple, other)))",
    "get_computed_blocks": "result = manager.get_computed_blocks(request)\nresult",
    "admit": "hits, tokens = manager.get_computed_blocks(request)\n"
    "new = manager.allocate_slots(request, num_tokens, lend(hits))\n"
    "after(request, num_tokens, hits, new)\nresult = [hits, new]\nresult",
    "step": "result = manager.allocate_slots(request, num_tokens)\nafter(request, num_tokens, [], result)\nresult",
    "free": "manager.free(request)\nforget(request)",
    "preempt": "result = manager.free(request)\nrequest.num_computed_tokens = 0",
    "write": "result = manager.write(request, position, token)\nresult",
    "clear_lists": "clear_lists(result)",
    "stand_in": "stand_in(source)",
    "become": "become(free, ref, hashes, payload, indexed, tables, ncached, computed)",
}
TAKES = {"blocks": "[all_blocks[{}]]", "block": "all_blocks[{}]", "request": "requests[{}]"}
GIVES = {
    **dict.fromkeys(("popleft", "get_cached_block", "fork_block", "write"), "place"),
    **dict.fromkeys(("popleft_n", "get_all_free_blocks", "get_new_blocks", "step"), "list_of_blocks"),
    "get_computed_blocks": "hits_and_tokens",
    "admit": "hits_and_new",
}

READS = {
    "requests": "requests_now()",
    "tables": "{name: ids(table) for name, table in of_manager('req_to_blocks') if len(table) > 0}",
    "ncached": "{name: count for name, count in of_manager('num_cached_block') if count != 0}",
    "free": "walk(the_queue(), places)",
    "back": 'walk(the_queue(), places, "fake_free_list_tail", "prev_free", "fake_free_list_head")',
    "num_free": "the_queue().num_free_blocks if all_blocks else 0",
    "loose": "loose_blocks()",
    "earlier": "[walk(*earlier) for earlier in engines[:-1]]",
    "args": "lists_unchanged()",
    "null": "[b for b, block in enumerate(pool_blocks()) if block.is_null]",
    "ref": "[block.ref_cnt if b else None for b, block in enumerate(pool_blocks())]",
    "hash": "[hash_name(block.block_hash) for block in pool_blocks()]",
    "payload": "[block.payload for block in pool_blocks()]",
    "shared": "shared_payloads()",
    "index": "index()",
    "ids": "ids_of_the_pool()",
    "num_blocks": "len(all_blocks)",
    "caching": "settings[2]",
    "sizes": "settings[:2]",
    "texts": "repr(request_facts)",
}

_ALLOCATING = ("admit", "step")
FACETS = (
    Facet("accepted", path="accepted", calls=_ALLOCATING),
    Facet("hits", path="reply.0", calls=("admit",), title="hits"),
    Facet("new", path="reply.1", calls=("admit",), title="new blocks"),
    Facet("hits", path="reply", calls=("get_computed_blocks",)),
    Facet("new", path="reply", calls=("step",)),
    Facet("reply", path="reply"),
    Facet("refused", path="refused"),
    Facet("free", title="free queue, head to tail"),
    Facet("back", title="free queue, tail to head"),
    Facet("num_free", title="num_free_blocks"),
    Facet("loose", title="blocks outside the queue with a link"),
    Facet("ref", per="block", title="ref_cnt"),
    Facet("hash", per="block", title="block_hash"),
    Facet("payload", per="block"),
    Facet("shared", title="blocks that share one payload list"),
    Facet("null", title="blocks with is_null"),
    Facet("ids", title="pool.blocks are the blocks 0 to n - 1 of the start"),
    Facet("index", per="hash", title="index"),
    Facet("tables", per="request", title="table", absent="empty"),
    Facet("ncached", per="request", title="num_cached_block"),
    Facet("num_tokens", per="request", path="state.requests.*.0"),
    Facet("num_computed", per="request", path="state.requests.*.1", title="num_computed_tokens"),
    Facet("block_hashes", per="request", path="state.requests.*.2"),
    Facet("earlier", title="queues made before, head to tail"),
    Facet("args", title="lists that were given are as before"),
)


def lab() -> Lab:
    """Return the lab."""
    return python_lab(
        globals(),
        "block_pool",
        "Block pool: a prefix-caching KV-cache manager",
        "reference.block_pool:Manager",
        traces="grader.labs.block_pool.traces",
        circumstances="grader.labs.block_pool.situations:circumstances",
        invariants=broken,
        smalls="grader.labs.block_pool.small:SMALL",
        mend=mend,
        stand_ins=[STAND_IN],
    )


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
    yield from _of_the_queue(state)
    if state["ref"]:
        yield from _of_the_counts(state)
        yield from _of_the_index(state)
        yield from (f"blocks {first} and {second} share one payload list" for first, second in state["shared"])
    if state["sizes"][0]:
        yield from _of_the_tables(state)


def _of_the_queue(state: dict[str, Any]) -> Iterator[str]:
    free = state["free"]
    twice = sorted({number for number in free if free.count(number) > 1})
    yield from (f"block {block} is in the queue twice" for block in twice)
    if state["back"] != free[::-1]:
        yield "the queue read backwards differs from the queue read forwards"
    if state["num_free"] != len(free):
        yield f"num_free_blocks is {state['num_free']}, the queue has {len(free)}"
    yield from (f"block {block} is outside the queue but still has a link" for block in state["loose"])


def _of_the_counts(state: dict[str, Any]) -> Iterator[str]:
    free = set(state["free"])
    for block, count in enumerate(state["ref"]):
        if count is None:
            continue
        if count == 0 and block not in free:
            yield f"block {block} is free (ref_cnt 0) but not in the queue"
        if count != 0 and block in free:
            yield f"block {block} is in use (ref_cnt {count}) but in the queue"
    yield from (f"the null block (block {block}) is in the queue" for block in state["null"] if block in free)
    yield from (f"the null block (block {block}) has a hash" for block in state["null"] if state["hash"][block])


def _of_the_index(state: dict[str, Any]) -> Iterator[str]:
    hashes, index = state["hash"], state["index"]
    for block, hash_ in enumerate(hashes):
        if hash_ is not None and block not in index.get(hash_, ()):
            yield f"block {block} has hash {hash_} but the index does not hold it"
    for hash_, blocks in index.items():
        if not blocks:
            yield f"the index has an entry without blocks under {hash_}"
        for block in blocks:
            if hashes[block] != hash_:
                yield f"the index holds block {block} under {hash_}, but the block's hash is {hashes[block]}"


def _of_the_tables(state: dict[str, Any]) -> Iterator[str]:
    used = list(chain.from_iterable(state["tables"].values()))
    for block, count in enumerate(state["ref"]):
        if count is not None and count != used.count(block):
            yield f"ref_cnt of block {block} is {count}, but {used.count(block)} tables contain it"
