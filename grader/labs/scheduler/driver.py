"""Makes the calls of the scheduler assignment, and reads the state of a submission after each.

A submission gets the given manager, extended to note its calls. Requests are recognised by identity.
"""

from __future__ import annotations

from typing import Annotated, Any

import scheduler as submission
from kv_cache import KVCacheManager, Request

log: list[Any] = []  # calls on managers in this operation


class RecordedManager(KVCacheManager):  # type: ignore[misc]
    """The given manager, which also notes the calls that change something."""

    def allocate_slots(self, request: Any, num_new_tokens: Any, new_computed_blocks: Any = None) -> Any:
        blocks = super().allocate_slots(request, num_new_tokens, new_computed_blocks)
        word = "none" if blocks is None else "alloc"
        log.append([word, request.request_id, num_new_tokens, len(new_computed_blocks or ())])
        return blocks

    def free(self, request: Any) -> None:
        if self._tables.get(request.request_id):
            log.append(["free", request.request_id])
        super().free(request)


class World:
    """The objects of the test program that calls a submission, and what it remembers."""

    def __init__(self) -> None:
        self.begin(None, None, [])

    def begin(self, kv: Any, scheduler: Any, settings: list[Any]) -> None:
        """Begin with a new manager and scheduler, and forget everything else."""
        self.kv, self.scheduler = kv, scheduler
        self.settings = settings  # the arguments with which both were made
        self.requests: dict[str, Any] = {}  # by id, the newest request with that id
        self.given: dict[str, list[Any]] = {}  # of each request its prompt, max_tokens, priority and arrival
        self.scheduled: dict[str, int] = {}  # tokens by request id, from schedule until update
        self.spoiled = False  # whether the result of the last schedule was emptied
        self.lent: list[tuple[Any, Any]] = []  # lists that were given, each with a copy
        self.returned: list[tuple[Any, Any]] = []  # results of calls, each with a copy

    def lend(self, items: Any) -> Any:
        """Remember a list or dict that goes into a call, to see later whether it was changed."""
        self.lent.append((items, _copied(items)))
        return items

    def keep(self, result: Any, scheduled: Any) -> None:
        """Remember a result, to see later whether the program changed it."""
        self.returned.append((result, _copied(result)))
        self.scheduled, self.spoiled = scheduled, False

    def names_of(self, queue: Any) -> list[str]:
        """Return the ids of the requests in a queue, "?" for other objects; stop if there are too many."""
        read: list[str] = []
        for request in queue if queue is not None else ():
            if len(read) > 2 * len(self.requests) + 2:
                break
            read.append(next((name for name, other in self.requests.items() if other is request), "?"))
        return read


def _copied(value: Any) -> Any:
    """Return a copy of lists, tuples and dicts, however nested. Other objects, such as requests, are not copied."""
    if type(value) in (list, tuple):
        return type(value)([_copied(item) for item in value])
    return {key: _copied(item) for key, item in value.items()} if type(value) is dict else value


def _sample(request: Any) -> int:
    """Return the token that the model of the tests samples."""
    tokens = request.all_token_ids
    return (sum(place * token for place, token in enumerate(tokens, 1)) + len(tokens)) % 3


def _exactly(kind: type, value: Any) -> Any:
    return value if type(value) is kind else "?"


def _text(value: Any) -> str:
    return str.__str__(value) if isinstance(value, str) else "?"  # a str of an enumeration is a str


def _requests(world: World) -> dict[str, Any]:
    return {
        name: [
            *(_text(r.status), _exactly(int, r.num_computed_tokens), _exactly(int, r.num_preemptions)),
            r.all_token_ids[r.num_prompt_tokens :],
        ]
        for name, r in world.requests.items()
    }


def _tables(kv: Any) -> dict[str, list[int]]:
    pairs = kv._tables.items() if kv is not None else ()
    return {name: [block.block_id for block in table] for name, table in pairs if table}


def _pool(kv: Any) -> dict[str, Any]:
    """Return the content of the manager, as plain values."""
    if kv is None:
        return {"ref": [], "hash": [], "index": {}, "ncached": {}}
    return {
        "ref": [block.ref_cnt if block.block_id else None for block in kv._blocks],
        "hash": [block._key for block in kv._blocks],
        "index": {key: [block.block_id for block in blocks] for key, blocks in kv._cached.items()},
        "ncached": {name: count for name, count in kv._counted.items() if count},
    }


def _plan(world: World, result: Any) -> list[Any]:
    pairs = [[name, tokens] for name, tokens in result["scheduled"].items()]
    return [pairs, *(list(result[key]) for key in ("new", "resumed", "preempted")), result["total"]]


Blocks = Annotated[int, 1, 999]
BlockSize = Annotated[int, 1, 99]
MaxSeqs = Annotated[int, -1, 99]
Few = Annotated[int, -1, 999]
Order = Annotated[int, 0, 999]
Big = Annotated[int, "a whole number"]
Bytes = Annotated[list[int], "a list of bytes for each worker"]
Override = Annotated[int | None, "a number of blocks, or null"]
Lengths = Annotated[list[list[int]], "a list of [prompt,output]"]
Plan = Annotated[Any, _plan]


def scheduler(
    world: World,
    num_blocks: Blocks,
    block_size: BlockSize,
    caching: bool,
    max_seqs: MaxSeqs,
    max_tokens_a_step: Few,
    threshold: Few,
    policy: str,
    reserve_full: bool,
) -> Annotated[None, ValueError]:
    """Task 1."""
    log.clear()
    kv = RecordedManager(num_blocks, block_size, caching)
    made_with = [max_seqs, max_tokens_a_step, threshold, policy, reserve_full]
    world.begin(kv, submission.Scheduler(kv, *made_with), [num_blocks, block_size, caching, *made_with])


def add(
    world: World, name: str, tokens: list[int], max_tokens: Few, priority: Order, arrival: Order
) -> Annotated[None, ValueError]:
    log.clear()
    request = Request(name, tokens, max_tokens, priority, arrival)
    world.scheduler.add_request(request)
    world.requests[request.request_id] = request
    world.given[request.request_id] = [list(tokens), request.max_tokens, request.priority, request.arrival_time]


def schedule(world: World) -> Plan:
    """Task 2."""
    log.clear()
    result = world.scheduler.schedule()
    world.keep(result, dict(result["scheduled"]))
    return result


def update(world: World) -> Any:
    """Task 3."""
    log.clear()
    samples = {name: _sample(world.requests[name]) for name in world.scheduled}
    result = world.scheduler.update(world.lend(samples))
    world.keep(result, {})
    return result


def abort(world: World, name: str) -> Annotated[Any, False]:
    """Task 4."""
    log.clear()
    return world.scheduler.abort(name)


def reset(world: World, preempt_running: bool) -> Any:
    log.clear()
    return world.scheduler.reset_prefix_cache(preempt_running)


def spoil(world: World) -> None:
    """Section 2."""
    log.clear()
    world.spoiled = bool(world.scheduled)
    for result, _ in world.returned:
        for part in [*result.values(), result] if isinstance(result, dict) else [result]:
            if isinstance(part, list | dict):
                part.clear()
    world.returned.clear()


def page_size_bytes(world: World, tokens_a_block: Big, num_kv_heads: Big, head_size: Big, itemsize: Big) -> Any:
    """Task 5."""
    log.clear()
    return submission.page_size_bytes(tokens_a_block, num_kv_heads, head_size, itemsize)


def available_kv_memory(
    world: World, total: Big, percent: Big, weights: Big, peak: Big, other: Big
) -> Annotated[Any, ValueError]:
    log.clear()
    more = [other] if other else []
    return submission.available_kv_memory(total, percent, weights, peak, *more)


def get_num_blocks(
    world: World, available: Bytes, page_bytes: Big, num_layers: Big, override: Override
) -> Annotated[Any, ValueError]:
    log.clear()
    more = [] if override is None else [override]
    return submission.get_num_blocks(world.lend(available), page_bytes, num_layers, *more)


def check_enough_memory(
    world: World, memory: Big, max_model_len: Big, tokens_a_block: Big, page_bytes: Big, num_layers: Big
) -> Annotated[Any, ValueError]:
    log.clear()
    return submission.check_enough_memory(memory, max_model_len, tokens_a_block, page_bytes, num_layers)


def estimate_max_model_len(
    world: World, memory: Big, max_model_len: Big, tokens_a_block: Big, page_bytes: Big, num_layers: Big
) -> Any:
    log.clear()
    return submission.estimate_max_model_len(memory, max_model_len, tokens_a_block, page_bytes, num_layers)


def max_concurrency(world: World, blocks: Big, max_model_len: Big, tokens_a_block: Big) -> Any:
    log.clear()
    return submission.max_concurrency(blocks, max_model_len, tokens_a_block)


def simulate(
    world: World, policy: str, slots: Big, max_len: Big, tokens_a_block: Big, lengths: Lengths
) -> Annotated[Any, ValueError]:
    """Task 6."""
    log.clear()
    return submission.simulate(policy, slots, max_len, tokens_a_block, world.lend(lengths))


def read(world: World) -> dict[str, Any]:
    """Return a function for each part of the state that reads it: if one fails, the others still work."""
    return {
        "running": lambda: world.names_of(None if world.scheduler is None else world.scheduler.running),
        "waiting": lambda: world.names_of(None if world.scheduler is None else world.scheduler.waiting),
        "req": lambda: _requests(world),
        "calls": lambda: log,
        "tables": lambda: _tables(world.kv),
        "free": lambda: [block.block_id for block in world.kv._free] if world.kv is not None else [],
        "intact": lambda: all(items == copy for items, copy in (*world.lent, *world.returned)),
        "settings": lambda: world.settings,
        "scheduled": lambda: world.scheduled,
        "spoiled": lambda: world.spoiled,
        "given": lambda: world.given,
        "pool": lambda: _pool(world.kv),
    }
