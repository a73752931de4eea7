"""Part 1 of the engine against vLLM 0.22.1 itself: replies and states of its KVCacheManager, in 240 random traces.

`vllm_traces.json.gz` was written by `python -m grader.tests.trials.hybrid_peer`, which drives vLLM's own files and
compares many more traces; its docstring says where vLLM is known to differ. The file holds facts, what vLLM answered
and had, and nothing of its code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reference.hybrid import Hybrid
from reference.oracle import Oracle
from reference.tests.frozen_traces import difference, replay, traces_in
from reference.tests.hybrid.mistaken import Mistake, engine_module

PARTS = ("free", "ref", "index", "tables", "requests")

_FROZEN = Path(__file__).with_name("vllm_traces.json.gz")


@cache
def frozen() -> list[dict[str, Any]]:
    """The traces in the file."""
    return traces_in(_FROZEN)


def parts(state: dict[str, Any]) -> dict[str, Any]:
    """What of a state is compared: all that both have."""
    return {name: state[name] for name in PARTS}


def differences(make: Callable[[], Oracle]) -> Iterator[str]:
    """The first difference in each trace that has one."""
    return filter(None, (difference(trace, make(), parts) for trace in frozen()))


def test_the_engine_does_what_vllm_did() -> None:
    """After every operation: hits, new blocks, queue, counts, index, tables, computed tokens."""
    assert list(differences(Hybrid)) == []


@pytest.mark.parametrize("part", range(4))
def test_a_new_engine_goes_on_from_every_state_as_vllm_did(part: int) -> None:
    """It takes over the state before each operation, and then has what vLLM had after it."""
    for trace in frozen()[part::4]:
        engine = Hybrid()
        for operation, reply, state in replay(trace):
            other = Hybrid()
            other.restore(json.loads(json.dumps(engine.state())))
            assert other.state() == engine.state(), (trace["seed"], operation)
            assert json.loads(other.apply(operation).text) == reply, (trace["seed"], operation)
            assert parts(other.state()) == state, (trace["seed"], operation)
            engine = other


def test_the_frozen_traces_meet_what_matters() -> None:
    """Every kind, with and without caching; sizes in ratios; windows that are left; refusals; each often enough."""
    met: Counter[str] = Counter()
    for trace in frozen():
        sizes: list[int] = []
        for operation, reply, state in replay(trace):
            met[operation.name] += 1
            if operation.name == "manager":
                groups: Any = operation.arguments[1]
                sizes = [size for _, size, _ in groups]
                met.update({kind for kind, _, _ in groups})
                met["caching" if operation.arguments[2] else "no caching"] += 1
            if operation.name == "match" and reply[1]:
                met["hit"] += 1
                met["hit in one group"] += len(sizes) == 1
                met["hit with nulls"] += any(0 in blocks for blocks in reply[0])
                met["hit of several sizes"] += len(set(sizes)) > 1
                met["hit of three sizes"] += len(set(sizes)) == 3
                met["hit that is used"] += any(str(block) in state["ref"] for blocks in reply[0] for block in blocks)
            met["refused admit"] += operation.name == "admit" and reply is None
            met["refused step"] += operation.name == "step" and reply is None
            met["two blocks under a key"] += any(len(blocks) > 1 for blocks in state["index"].values())
            met["nulls"] += any(0 in table for tables in state["tables"].values() for table in tables)

    assert len(frozen()) == 240
    assert len(met) == 25
    assert {what: count for what, count in met.items() if count < 10} == {}


_WRONG: dict[str, Mistake] = {
    "the window has one token more": ("kinds", "computed - self.window + 1", "computed - self.window"),
    "the window has one token less": ("kinds", "computed - self.window + 1", "computed - self.window + 2"),
    "a hit needs the whole window": ("kinds", "ceil(self.window - 1,", "ceil(self.window,"),
    "a hit needs whole blocks only": (
        "kinds",
        "ceil(self.window - 1, self.block_size)",
        "self.window // self.block_size",
    ),
    "a window hit is a prefix": ("kinds", "blocks - ceil(self.window - 1, self.block_size)", "0"),
    "mamba keeps two states": ("kinds", "max(0, computed - 1)", "max(0, computed - 2)"),
    "mamba keeps no state": ("kinds", "max(0, computed - 1)", "computed"),
    "a mamba hit needs all states": ("kinds", "range(max(0, blocks - 1), blocks)", "range(blocks)"),
    "cross layers hold text": ("kinds", "return num_encoder_tokens", "return total"),
    "one block more than needed": ("kinds", "return -(-number // divisor)", "return number // divisor + 1"),
    "the last token may hit": ("manager", "(len(known.tokens) - 1) //", "len(known.tokens) //"),
    "the largest block size for the common multiple": ("manager", "return lcm(*(", "return max(("),
    "the shortest hit of all": ("manager", "tokens -= self._alignment", "tokens = 0"),
    "all groups look where the first one does": ("manager", "hashes[position], group_id", "hashes[position], 0"),
    "hits are looked up under another block's hash": (
        "manager",
        "hashes[position], group_id",
        "hashes[position - 1], group_id",
    ),
    "released tokens include the new ones": (
        "manager",
        "self._release(tables, computed)",
        "self._release(tables, total)",
    ),
    "hits are no computed tokens": ("manager", "known.computed + num_new_computed_tokens", "known.computed"),
    "a block is released too early": (
        "manager",
        "group.skipped(computed) //",
        "(group.skipped(computed) + group.block_size - 1) //",
    ),
    "the first position is released first": ("manager", "free_blocks(leaving[::-1])", "free_blocks(leaving)"),
    "the first position is freed first": ("manager", "free_blocks(table[::-1])", "free_blocks(table)"),
    "groups are freed in another order": (
        "manager",
        "self.tables.pop(request, ()):",
        "self.tables.pop(request, ())[::-1]:",
    ),
    "hits in the queue cost nothing": ("manager", "sum(needed) + sleeping >", "sum(needed) >"),
    "nulls cost a block": ("manager", "for block in blocks if block != NULL_BLOCK)", "for block in blocks)"),
    "the last block stays free": ("manager", "sleeping > self.pool.num_free", "sleeping >= self.pool.num_free"),
    "blocks behind the alignment are entered": ("manager", "total // self._alignment * self._alignment", "total"),
    "a group enters its blocks for the first one": ("manager", "hashes[:count], group_id)", "hashes[:count], 0)"),
    "hits are not touched": ("manager", "            self.pool.touch(blocks)\n", ""),
    "a request remembers what it computed": ("manager", "self.requests[request].computed = 0", "pass"),
    "the youngest duplicate is hit": ("pool", '/{group_id}", ())', '/{group_id}", ())[::-1]'),
    "a new block stays in the index": (
        "pool",
        "            self.forget(block)\n            self.ref",
        "            self.ref",
    ),
}


@pytest.mark.parametrize("wrong", _WRONG)
def test_an_engine_with_a_mistake_differs(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """A line that reads otherwise is seen in some trace."""
    manager = engine_module(monkeypatch, "manager", _WRONG[wrong])

    assert _differs(manager.Manager)


def test_an_engine_that_is_only_executed_anew_does_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes the others differ is their mistake."""
    manager = engine_module(monkeypatch, "manager", ("pool", "self.forget(block)", "self.forget(block)"))

    assert not any(differences(manager.Manager))


def _differs(make: Callable[[], Oracle]) -> bool:
    """Whether an engine has a difference, or asks the pool for what it does not have."""
    try:
        return any(differences(make))
    except ValueError:
        return True
