"""The engine against vLLM 0.22.1 itself: replies and states of its KVCacheManager, frozen, in 200 random traces.

`vllm_traces.json.gz` was written by `python -m grader.tests.trials.block_pool_peer`, which drives vLLM's own files and
compares many more traces. It holds facts, what vLLM answered and had, and nothing of its code.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reference.block_pool import Manager
from reference.operation import Argument, Operation

__all__ = ["PARTS", "parts"]

PARTS = ("free", "back", "num_free", "null", "ref", "hash", "index", "tables", "ncached", "requests")
"""What of a state is compared: all that both have."""

_FROZEN = Path(__file__).with_name("vllm_traces.json.gz")


@cache
def frozen() -> list[dict[str, Any]]:
    """Each trace: its seed, its operations, and after each the reply and the parts of the state that changed."""
    traces: list[dict[str, Any]] = json.loads(gzip.decompress(_FROZEN.read_bytes()))["traces"]
    return traces


def parts(engine: Manager) -> dict[str, Any]:
    """What of the engine's state is compared."""
    state = engine.state()
    return {name: state[name] for name in PARTS}


def argument(value: Any) -> Argument:
    """A value of JSON as an operation has it."""
    return tuple(map(argument, value)) if isinstance(value, list) else value


def difference(trace: dict[str, Any]) -> str:
    """Play a trace; tell the first difference, or nothing."""
    engine, state = Manager(), dict[str, Any]()
    for (name, arguments), (reply, changed) in zip(trace["operations"], trace["after"], strict=True):
        operation = Operation(name=name, arguments=tuple(map(argument, arguments)))
        state |= changed
        mine = {"reply": json.loads(engine.apply(operation).text), **parts(engine)}
        theirs = {"reply": reply, **state}
        different = [f"{key}: vLLM {theirs[key]}, the engine {mine[key]}" for key in mine if mine[key] != theirs[key]]
        if different:
            return "; ".join([f"seed {trace['seed']}, {operation}", *different])
    return ""


def test_the_engine_does_what_vllm_did() -> None:
    """After every operation: queue, counts, hashes, index, tables, counters and the reply."""
    assert [found for trace in frozen() if (found := difference(trace))] == []


def test_the_frozen_traces_meet_what_matters() -> None:
    """Hits, refusals, duplicates, extra keys, no caching; each of them often enough."""
    met: Counter[str] = Counter()
    for trace in frozen():
        for (name, arguments), (reply, changed) in zip(trace["operations"], trace["after"], strict=True):
            met[name] += 1
            met["refused"] += name in ("admit", "step") and reply is None
            met["hit"] += name == "admit" and bool(reply and reply[0])
            met["no caching"] += name == "mgr" and not arguments[2]
            met["duplicate"] += any(len(blocks) > 1 for blocks in changed.get("index", {}).values())
            met["extra keys"] += any("+" in hash_ for hash_ in changed.get("hash", ()) if hash_)
            met["reset"] += name == "reset_prefix_cache" and reply

    assert met["mgr"] == len(frozen()) == 200
    assert {what: count for what, count in met.items() if count < 10} == {}


@pytest.mark.parametrize("operation", ["touch", "_evict", "_cache"])
def test_an_engine_without_a_part_differs(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """The comparison can fail."""
    monkeypatch.setattr(Manager, operation, lambda *_: None)

    assert any(difference(trace) for trace in frozen())
