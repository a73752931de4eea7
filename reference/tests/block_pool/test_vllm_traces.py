"""The engine against vLLM 0.22.1 itself: replies and states of its KVCacheManager, frozen, in 200 random traces.

`vllm_traces.json.gz` was written by `python -m grader.tests.trials.block_pool_peer`, which drives vLLM's own files and
compares many more traces. It holds facts, what vLLM answered and had, and nothing of its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reference.block_pool import Manager
from reference.tests.frozen_traces import difference, traces_in

_PARTS = ("free", "num_free", "null", "ref", "hash", "index", "tables", "ncached", "requests")

_FROZEN = Path(__file__).with_name("vllm_traces.json.gz")


@cache
def frozen() -> list[dict[str, Any]]:
    """The traces in the file."""
    return traces_in(_FROZEN)


def parts(state: dict[str, Any]) -> dict[str, Any]:
    """What of a state is compared: all that both have."""
    return {name: state[name] for name in _PARTS}


def differences() -> Iterator[str]:
    """The first difference in each trace that has one."""
    return filter(None, (difference(trace, Manager(), parts) for trace in frozen()))


def test_the_engine_does_what_vllm_did() -> None:
    """After every operation: queue, counts, hashes, index, tables, counters and the reply."""
    assert list(differences()) == []


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

    assert any(differences())
