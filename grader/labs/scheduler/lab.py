"""The table of the scheduler assignment: how its calls are made, and what is read of a submission after each.

The manager that a submission gets is the given one, which notes its calls. Requests are named by identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import JsonValue, Number, Word
from grader.core.picture import Chart, Level, Shares, Track
from grader.core.rubric import Facet
from grader.labs.python_lab import Described, as_list, as_mapping, call, python_lab, reply_of, state_of
from reference.operation import Trace

_BYTES = 2**62
COUNT, SIZE = Number("num_blocks", 1, 999), Number("block_size", 1, 99)
SEQS, BUDGET, THRESHOLD = Number("max_seqs", -1, 99), Number("max_tokens_a_step", -1, 999), Number("threshold", -1, 999)
CACHING, RESERVE = JsonValue("caching", "true or false"), JsonValue("reserve_full", "true or false")
POLICY, NAME = Word("policy"), Word("name")
TOKENS, MAX_TOKENS = JsonValue("tokens", "a list of tokens such as [1,2]"), Number("max_tokens", -1, 999)
PRIORITY, ARRIVAL = Number("priority", 0, 999), Number("arrival", 0, 999)
PREEMPT = JsonValue("preempt_running", "true or false")
AVAILABLE = JsonValue("available", "a list of bytes for each worker")
OVERRIDE = JsonValue("override", "a number of blocks, or null")
LENGTHS = JsonValue("lengths", "a list of [prompt,output]")


def _big(name: str) -> JsonValue:
    """Return an argument that may be more than a case file's numbers are."""
    return JsonValue(name, "a whole number", lambda value: isinstance(value, int) and abs(value) < _BYTES)


_ERROR = ("ValueError",)
_LIMITS = tuple(map(_big, ("memory", "max_model_len", "tokens_a_block", "page_bytes", "num_layers")))
OPERATIONS = {
    "scheduler": call(COUNT, SIZE, CACHING, SEQS, BUDGET, THRESHOLD, POLICY, RESERVE, task="Task 1", refusals=_ERROR),
    "add": call(NAME, TOKENS, MAX_TOKENS, PRIORITY, ARRIVAL, task="Task 1", refusals=_ERROR),
    "schedule": call(task="Task 2"),
    "update": call(task="Task 3"),
    "abort": call(NAME, task="Task 4", refusals=("false",)),
    "reset": call(PREEMPT, task="Task 4"),
    "spoil": call(task="Section 2"),
    "page_size_bytes": call(*map(_big, ("tokens_a_block", "num_kv_heads", "head_size", "itemsize")), task="Task 5"),
    "available_kv_memory": call(
        *map(_big, ("total", "percent", "weights", "peak", "other")), task="Task 5", refusals=_ERROR
    ),
    "get_num_blocks": call(AVAILABLE, _big("page_bytes"), _big("num_layers"), OVERRIDE, task="Task 5", refusals=_ERROR),
    "check_enough_memory": call(*_LIMITS, task="Task 5", refusals=_ERROR),
    "estimate_max_model_len": call(*_LIMITS, task="Task 5"),
    "max_concurrency": call(*map(_big, ("blocks", "max_model_len", "tokens_a_block")), task="Task 5"),
    "simulate": call(
        POLICY, *map(_big, ("slots", "max_len", "tokens_a_block")), LENGTHS, task="Task 6", refusals=_ERROR
    ),
}

SETUP = """\
from scheduler import Scheduler, available_kv_memory, check_enough_memory, estimate_max_model_len
from scheduler import get_num_blocks, max_concurrency, page_size_bytes, simulate
"""

DEFINES = '''\
from copy import deepcopy

from kv_cache import KVCacheManager, Request

kv = scheduler = None
requests = {}  # by id, the newest of each
given = {}  # of each request its prompt, max_tokens, priority and arrival
settings = []  # what the scheduler and its manager were made with
scheduled = {}  # by the last schedule, until update
spoiled = False  # whether what it returned was emptied
log = []  # calls on the manager in this operation
lent, returned = [], []  # lists that were given and results that came back, each with a copy


class RecordedManager(KVCacheManager):
    """The manager, which notes the calls that change something."""

    def allocate_slots(self, request, num_new_tokens, new_computed_blocks=None):
        blocks = super().allocate_slots(request, num_new_tokens, new_computed_blocks)
        word = "none" if blocks is None else "alloc"
        log.append([word, request.request_id, num_new_tokens, len(new_computed_blocks or ())])
        return blocks

    def free(self, request):
        if self._tables.get(request.request_id):
            log.append(["free", request.request_id])
        super().free(request)


def begin(new_kv, made_with):
    """Forget what was before."""
    global kv, requests, given, settings, scheduled, spoiled
    kv, requests, given, settings, scheduled, spoiled = new_kv, {}, {}, made_with, {}, False
    lent.clear()
    returned.clear()


def accept(request, tokens):
    """Keep a request that was accepted under its id."""
    requests[request.request_id] = request
    given[request.request_id] = [list(tokens), request.max_tokens, request.priority, request.arrival_time]


def copied(value):
    """A deep copy, without looking twice for the same object."""
    if type(value) is list:
        return [copied(item) for item in value]
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value if type(value) in (int, str, type(None)) else deepcopy(value)


def lend(items):
    """Remember a list or dict that goes into a call, to see later whether it is as before."""
    lent.append((items, copied(items)))
    return items


def keep(result):
    """Remember a result, to see later whether it is as it was returned."""
    returned.append((result, copied(result)))
    return result


def open_step(result):
    global scheduled, spoiled
    scheduled, spoiled = dict(keep(result)["scheduled"]), False


def close_step(result):
    global scheduled, spoiled
    scheduled, spoiled = {}, False
    keep(result)


def samples():
    """The token that the model of the tests computes for each scheduled request."""
    return lend({name: sample(requests[name]) for name in scheduled})


def sample(request):
    tokens = request.all_token_ids
    return (sum(place * token for place, token in enumerate(tokens, 1)) + len(tokens)) % 3


def spoil():
    """Empty what the last schedule and update returned."""
    global spoiled
    spoiled = bool(scheduled)
    for result, _ in returned:
        for part in [*result.values(), result] if isinstance(result, dict) else [result]:
            if isinstance(part, (list, dict)):
                part.clear()
    returned.clear()


def names_of(queue):
    """The ids of the requests in a queue, which are our very objects; at most so many as there can be."""
    read = []
    for request in queue if queue is not None else ():
        if len(read) > 2 * len(requests) + 2:
            break
        read.append(next((name for name, other in requests.items() if other is request), "?"))
    return read


def plan_of(result):
    pairs = [[name, tokens] for name, tokens in result["scheduled"].items()]
    return [pairs, *(list(result[key]) for key in ("new", "resumed", "preempted")), result["total"]]


def requests_now():
    return {
        name: [
            exactly(str, r.status), exactly(int, r.num_computed_tokens), exactly(int, r.num_preemptions), outputs(r)
        ]
        for name, r in requests.items()
    }


def exactly(kind, value):
    return value if type(value) is kind else "?"


def outputs(request):
    return request.all_token_ids[request.num_prompt_tokens :]


def tables():
    pairs = kv._tables.items() if kv is not None else ()
    return {name: [block.block_id for block in table] for name, table in pairs if table}


def pool():
    """What the manager holds, as plain values."""
    if kv is None:
        return {"ref": [], "hash": [], "index": {}, "ncached": {}}
    return {
        "ref": [block.ref_cnt if block.block_id else None for block in kv._blocks],
        "hash": [block._key for block in kv._blocks],
        "index": {key: [block.block_id for block in blocks] for key, blocks in kv._cached.items()},
        "ncached": {name: count for name, count in kv._counted.items() if count},
    }


def is_intact():
    return all(items == copy for items, copy in (*lent, *returned))
'''

_MEMORY = "memory, max_model_len, tokens_a_block, page_bytes, num_layers"
CALLS = {
    "scheduler": "new_kv = RecordedManager(num_blocks, block_size, caching)\n"
    "scheduler = Scheduler(new_kv, max_seqs, max_tokens_a_step, threshold, policy, reserve_full)\n"
    "begin(new_kv, [num_blocks, block_size, caching, max_seqs, max_tokens_a_step, threshold, policy, reserve_full])",
    "add": "request = Request(name, tokens, max_tokens, priority, arrival)\n"
    "result = scheduler.add_request(request)\naccept(request, tokens)",
    "schedule": "result = scheduler.schedule()\nopen_step(result)\nresult",
    "update": "result = scheduler.update(samples())\nclose_step(result)\nresult",
    "abort": "scheduler.abort(name)",
    "reset": "scheduler.reset_prefix_cache(preempt_running)",
    "spoil": "spoil()",
    "page_size_bytes": "page_size_bytes(tokens_a_block, num_kv_heads, head_size, itemsize)",
    "available_kv_memory": "more = [n for n in [other] if n]\n"
    "available_kv_memory(total, percent, weights, peak, *more)",
    "get_num_blocks": "more = [n for n in [override] if n is not None]\n"
    "get_num_blocks(lend(available), page_bytes, num_layers, *more)",
    "check_enough_memory": f"check_enough_memory({_MEMORY})",
    "estimate_max_model_len": f"estimate_max_model_len({_MEMORY})",
    "max_concurrency": "max_concurrency(blocks, max_model_len, tokens_a_block)",
    "simulate": "simulate(policy, slots, max_len, tokens_a_block, lend(lengths))",
}
CALLS = {name: f"log.clear()\n{text}" for name, text in CALLS.items()}
GIVES = {"schedule": "plan_of"}
READS = {
    "running": "names_of(scheduler and scheduler.running)",
    "waiting": "names_of(scheduler and scheduler.waiting)",
    "req": "requests_now()",
    "calls": "log",
    "tables": "tables()",
    "free": "[block.block_id for block in kv._free] if kv is not None else []",
    "intact": "is_intact()",
    "settings": "settings",
    "scheduled": "scheduled",
    "spoiled": "spoiled",
    "given": "given",
    "pool": "pool()",
}

_STEP, _ROWS = ("schedule",), ("simulate",)
FACETS = (
    Facet("error", path="accepted"),
    Facet("counts", path="reply.0", calls=_STEP, title="scheduled tokens"),
    Facet("admitted", path="reply.1", calls=_STEP, title="new"),
    Facet("admitted", path="reply.2", calls=_STEP, title="resumed"),
    Facet("preempted", path="reply.3", calls=_STEP),
    Facet("counts", path="reply.4", calls=_STEP, title="total"),
    Facet("reply", path="reply", tolerance=1e-9, calls=("max_concurrency",)),
    Facet("held", per="row", path="reply.*.0", calls=_ROWS, title="token"),
    Facet("totals", per="row", path="reply.*.1", calls=_ROWS, title="reserved"),
    Facet("totals", per="row", path="reply.*.2", calls=_ROWS, title="internal"),
    Facet("totals", per="row", path="reply.*.3", calls=_ROWS, title="external"),
    Facet("reply", path="reply"),
    Facet("failing", path="refused"),
    Facet("running"),
    Facet("waiting"),
    Facet("status", per="request", path="state.req.*.0"),
    Facet("computed", per="request", path="state.req.*.1", title="num_computed_tokens"),
    Facet("preemptions", per="request", path="state.req.*.2", title="num_preemptions"),
    Facet("outputs", per="request", path="state.req.*.3"),
    Facet("calls", title="calls on the manager", of_call=True),
    Facet("pool", per="request", path="state.tables", title="blocks"),
    Facet("pool", path="state.free", title="free blocks"),
    Facet("intact", title="arguments and results are as they were"),
)


def lab() -> Lab:
    """Return the lab."""
    return python_lab(
        globals(),
        "scheduler",
        "A scheduler for a paged KV cache",
        "reference.scheduler:Scheduler",
        traces="grader.labs.scheduler.traces",
        circumstances="grader.labs.scheduler.situations:circumstances",
        given={"kv_cache": Path(__file__).parent / "given" / "kv_cache.py"},
        invariants=broken,
        charts=charts,
        smalls="grader.labs.scheduler.small:SMALL",
    )


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
    if not state["settings"]:
        return
    block_size, most_running, budget, threshold, policy = (state["settings"][place] for place in (1, 3, 4, 5, 6))
    running, waiting, scheduled = state["running"], state["waiting"], state["scheduled"]
    for name, (status, computed, _, _) in state["req"].items():
        yield from _of_a_request(state, name, status, computed)
        if name in running and status == "RUNNING" and name in state["tables"]:
            needed = -(-(computed + scheduled.get(name, 0)) // block_size)
            if len(state["tables"][name]) != needed:
                yield f"request {name} runs with {len(state['tables'][name])} blocks, its tokens need {needed}"
    if len(running) > most_running:
        yield f"{len(running)} requests run, at most {most_running} may"
    if sum(scheduled.values()) > budget:
        yield f"more tokens are scheduled than a step may have ({budget})"
    for name, tokens in scheduled.items():
        if tokens < 1:
            yield f"request {name} is scheduled with {tokens} tokens"
        if threshold and tokens > threshold:
            yield f"request {name} is scheduled with more tokens than the threshold ({threshold})"
    if policy == "priority" and all(name in state["given"] for name in waiting):
        keys = [(*state["given"][name][2:4], name) for name in waiting]
        if keys != sorted(keys):
            yield "waiting is not in the order of keys"


def _of_a_request(state: dict[str, Any], name: str, status: str, computed: int) -> Iterator[str]:
    running, waiting = state["running"], state["waiting"]
    places = running.count(name) + waiting.count(name)
    if status != "FINISHED" and places == 0:
        yield f"request {name} is lost: neither waiting nor running"
    if places > 1:
        yield f"request {name} is in two places"
    if name in waiting and name in state["tables"]:
        yield f"request {name} waits but keeps its blocks"
    if name in waiting and computed != 0:
        yield f"request {name} waits with {computed} computed tokens"


_SIGNS = {
    "P": "computes that many tokens of its prompt, or of what was lost",
    "D": "computes its newest token",
    "=": "runs, but computes nothing",
    "·": "waits",
    "x": "preempted",
    "?": "not readable",
}
_PARTS = {
    "█": "holds tokens",
    "▒": "reserved, will be used",
    "░": "never used (internal)",
    "·": "free or lost (external)",
}
_PAPER = {
    "max": ("paper, Orca (Max)", (20.4, 13.3, 57.3, 8.9)),
    "pow2": ("paper, Orca (Pow2)", (26.8, 17.9, 13.6, 41.6)),
    "oracle": ("paper, Orca (Oracle)", (38.2, 25.2, 0.0, 36.6)),
    "paged": ("paper, vLLM", (96.3, 0.0, 3.7, 0.0)),
}
"""Figure 2 of *Efficient Memory Management for Large Language Model Serving with PagedAttention* (SOSP 2023), percent.
Of vLLM it gives the first share only."""


def charts(trace: Trace, records: Sequence[Described], _: int) -> Iterator[Chart]:
    """Yield a chart of the steps, if there are any, and one of the simulations, if there are any."""
    places: dict[str, list[int]] = {}
    for place, operation in enumerate(trace.operations):
        places.setdefault(operation.name, []).append(place)
    if "schedule" in places:
        yield _schedule([place for place in places["schedule"] if place < len(records)], records)
    if "simulate" in places:
        policies = {place: str(trace.operations[place].arguments[0]) for place in places["simulate"]}
        totals = {place: _totals(records[place]) for place in policies if place < len(records)}
        yield Chart(
            title="Where the memory went, all steps together",
            legend=_PARTS,
            bars=tuple(
                Shares(label=f"{place + 1}: {policies[place]}", parts=parts)
                for place, parts in totals.items()
                if any(parts)
            ),
            known=tuple(
                Shares(label=label, parts=parts)
                for policy, (label, parts) in _PAPER.items()
                if policy in policies.values()
            ),
        )


def _schedule(places: Sequence[int], records: Sequence[Described]) -> Chart:
    """Draw requests as rows and steps as columns; below them the blocks in use."""
    steps = [records[place] for place in places]
    before = [records[max(0, place - 1)] for place in places]
    names = dict.fromkeys(name for record in steps for name in as_mapping(state_of(record, "req")))
    in_use = Level(
        label="blocks in use", values=tuple(map(_blocks_in_use, steps)), most=max(map(_usable, steps), default=0)
    )
    return Chart(
        title="Schedule",
        legend=_SIGNS,
        columns=tuple(str(number) for number, _ in enumerate(steps, 1)),
        operations=tuple(place + 1 for place in places),
        tracks=tuple(Track(label=name, cells=tuple(map(_cell, repeat(name), steps, before))) for name in names),
        levels=(in_use,) if steps else (),
    )


def _cell(name: str, record: Described, before: Described) -> str:
    """What a step did with a request."""
    returned = reply_of(record)
    plan: Sequence[Any] = returned if isinstance(returned, list) and len(returned) == 5 else ([],) * 5
    preempted = plan[3] if isinstance(plan[3], list) else []
    request = as_mapping(state_of(record, "req")).get(name)
    tokens = next((pair[1] for pair in _pairs(plan[0]) if pair[0] == name), None)
    if tokens is not None:
        return _computes(tokens, as_mapping(state_of(before, "req")).get(name), request)
    if name in preempted:
        return "x"
    if not isinstance(request, list) or len(request) != 4:
        return ""
    if name in as_list(state_of(record, "waiting")):
        return "·"
    return "=" if name in as_list(state_of(record, "running")) else ""


def _computes(tokens: object, before: object, after: object) -> str:
    """Tell the newest token of a request with output from tokens of its prompt, or computed once more."""
    if not isinstance(tokens, int):
        return "?"
    has_output = isinstance(after, list) and len(after) == 4 and isinstance(after[3], list) and len(after[3]) > 0
    computed = before[1] if isinstance(before, list) and len(before) == 4 else 0
    return "D" if has_output and tokens == 1 and computed else f"P{tokens}"


def _totals(record: Described) -> tuple[float, ...]:
    """The columns of a simulation's rows, each added up; zeros for rows that are none."""
    rows = reply_of(record)
    sums = [0, 0, 0, 0]
    for row in as_list(rows):
        if not isinstance(row, list) or len(row) != 4 or any(type(value) is not int or value < 0 for value in row):
            return (0, 0, 0, 0)
        sums = [total + value for total, value in zip(sums, row, strict=True)]
    return tuple(sums)


def _blocks_in_use(record: Described) -> int:
    tables = as_mapping(state_of(record, "tables")).values()
    return len({block for table in tables for block in as_list(table) if isinstance(block, int)})


def _usable(record: Described) -> int:
    settings = as_list(state_of(record, "settings"))
    return settings[0] - 1 if settings and isinstance(settings[0], int) else 0


def _pairs(value: object) -> list[Sequence[Any]]:
    return [pair for pair in as_list(value) if isinstance(pair, list) and len(pair) == 2]
