"""The engine against vLLM 0.22.1 itself: replies and states of its Scheduler, frozen, in 160 random traces.

`vllm_traces.json.gz` was written by `python -m grader.tests.trials.scheduler_peer`, which drives vLLM's own files and
compares many more traces. It holds facts, what vLLM answered and had, and nothing of its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reference.scheduler import Scheduler
from reference.tests.frozen_traces import difference, replay, traces_in

_PARTS = ("running", "waiting", "req", "calls", "tables", "free")
_OF_THE_POOL = ("ref", "hash", "index", "ncached")

_FROZEN = Path(__file__).with_name("vllm_traces.json.gz")


@cache
def frozen() -> list[dict[str, Any]]:
    """The traces in the file."""
    return traces_in(_FROZEN)


def parts(state: dict[str, Any]) -> dict[str, Any]:
    """What of a state is compared: all that both have."""
    return {name: state[name] for name in _PARTS} | {name: state["pool"][name] for name in _OF_THE_POOL}


def differences() -> Iterator[str]:
    """The first difference in each trace that has one."""
    return filter(None, (difference(trace, Scheduler(), parts) for trace in frozen()))


def test_the_engine_does_what_vllm_did() -> None:
    """After every operation: queues, requests, calls on the manager, tables, the pool, and the reply."""
    assert list(differences()) == []


def test_the_frozen_traces_meet_what_matters() -> None:
    """Both policies, the gate, a threshold, hits, all kinds of victims, aborts, resets; each often enough."""
    met: Counter[str] = Counter()
    for trace in frozen():
        for operation, reply, state in replay(trace):
            met[operation.name] += 1
            if operation.name == "scheduler":
                _, _, caching, _, _, threshold, policy, gate = operation.arguments
                met.update({"caching": bool(caching), "threshold": bool(threshold), str(policy): 1, "gate": bool(gate)})
            if operation.name == "schedule":
                met["several victims"] += len(reply[3]) > 1
                met["resumed"] += bool(reply[2])
                met["hit"] += any(call[0] == "alloc" and call[3] > 0 for call in state["calls"])
                met["refused newcomer"] += bool(state["calls"]) and state["calls"][-1][0] == "none"
                met["asked itself"] += any(_asked_itself(*pair) for pair in pairwise(state["calls"]))
                met["refund"] += _refunded(reply, state["calls"])
            met["aborted while running"] += operation.name == "abort" and bool(state["calls"])
            met["reset with victims"] += operation.name == "reset" and bool(state["calls"])
            met["finished"] += operation.name == "update" and len(reply)

    assert len(frozen()) == 160
    assert len(met) == 20
    assert {what: count for what, count in met.items() if count < 5} == {}


def _asked_itself(call: list[Any], after: list[Any]) -> bool:
    """Whether a request found no room and was the victim."""
    return call[0] == "none" and after == ["free", call[1]]


def _refunded(reply: Any, calls: list[Any]) -> bool:
    """Whether a victim had got room in this step."""
    return any(["free", name] in calls and any(call[:2] == ["alloc", name] for call in calls) for name in reply[3])


def _share(change: Callable[..., int]) -> Callable[..., int]:
    """A share that is computed in another way from what is missing, the threshold and the budget that is left."""
    return lambda engine, missing: change(missing, engine.settings[5], engine._budget)


def _waits(place: Callable[[Scheduler], int]) -> Callable[..., None]:
    """A victim or newcomer that waits elsewhere."""
    return lambda engine, request, **_: engine.waiting.insert(place(engine), request)


def _preempts(*, computed: bool = False, count: bool = False) -> Callable[..., None]:
    """A preemption after which the computed tokens, or the number of preemptions, are as before."""
    whole = Scheduler._preempt

    def preempt(engine: Scheduler, victim: str) -> None:
        known = engine.requests[victim]
        before = known.computed, known.preemptions
        whole(engine, victim)
        known.computed = before[0] if computed else known.computed
        known.preemptions = before[1] if count else known.preemptions

    return preempt


_WRONG: dict[str, tuple[str, Any]] = {
    "no threshold": ("_share", _share(lambda missing, _, budget: min(missing, budget))),
    "no budget": ("_share", _share(lambda missing, most, _: min(missing, most or missing))),
    "tokens of a victim are lost": (
        "_budget",
        property(lambda engine: engine.settings[4] - sum(call[2] for call in engine.calls if call[0] == "alloc")),
    ),
    "newcomers in front": ("_wait", _waits(lambda _: 0)),
    "victims at the tail": ("_wait", _waits(lambda engine: len(engine.waiting))),
    "no gate": ("_has_room", lambda *_: True),
    "the gate forgets hits": (
        "_has_room",
        lambda engine, tokens, _: -(-tokens // engine.kv.block_size) <= engine.kv.num_free,
    ),
    "nothing is freed": ("_free", lambda *_: None),
    "computed tokens stay": ("_preempt", _preempts(computed=True)),
    "preemptions are not counted": ("_preempt", _preempts(count=True)),
    "priority alone": ("_key", lambda engine, name: engine.requests[name].priority),
    "the newest first": (
        "_key",
        lambda engine, name: (engine.requests[name].priority, -engine.requests[name].arrival, name),
    ),
    "nobody is resumed or new": ("_admit_waiting", lambda _: ([], [])),
}


@pytest.mark.parametrize("wrong", _WRONG)
def test_an_engine_with_a_mistake_differs(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The comparison can fail."""
    monkeypatch.setattr(Scheduler, *_WRONG[wrong])

    assert any(differences())
