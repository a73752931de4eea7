"""The lab of the block pool: its facets, how its cases are mended, and its invariants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import Case, frozen
from grader.core.rubric import Facet, Rule
from grader.judge.work import asked_calls
from grader.labs.python_lab import python_lab, stand_in
from reference.operation import Argument, Operation

_ORACLE = Path(__file__).with_name("oracle.py")
_MAKES_A_POOL = {"pool", "mgr"}
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
        Path(__file__).parent,
        "Block pool: a prefix-caching KV-cache manager",
        "grader.labs.block_pool.oracle:BlockPoolOracle",
        FACETS,
        traces="grader.labs.block_pool.traces",
        circumstances="grader.labs.block_pool.oracle:circumstances",
        invariants=broken,
        smalls="grader.labs.block_pool.small:SMALL",
        mend=mend,
    )


def mend(case: Case, rule: Rule, wrong: frozenset[str]) -> Mapping[int, Operation]:
    """Give each new pool a right queue. Set the reference's state after each wrong call that the case is not about.

    Returns {} if the case is about no call or about a wrong call that makes a pool, or if this copy lacks the oracle.
    """
    about, source = asked_calls(case, rule), stand_in(_ORACLE, "FakeBlock", "FreeKVCacheBlockQueue")
    if not about or not source or not wrong.isdisjoint(about & _MAKES_A_POOL):
        return {}
    pokes: dict[int, Operation] = {}
    for number, operation in enumerate(case.trace.operations):
        if operation.name in _MAKES_A_POOL:
            pokes[number] = Operation(name="_stand_in", arguments=(source,))
        elif operation.name in wrong - about:
            state = json.loads(case.expected.records[number])["state"]
            pokes[number] = Operation(name="_become", arguments=_arguments(state))
    return pokes


def _arguments(state: dict[str, Any]) -> tuple[Argument, ...]:
    lists = [state[name] for name in ("free", "ref", "hash", "payload")]
    pairs = [state[name].items() for name in ("index", "tables", "ncached")]
    computed = [(name, tokens) for name, (_, tokens, _) in state["requests"].items()]
    return tuple(frozen(list(value)) for value in (*lists, *pairs, computed))


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
