"""What can never be so in the state of a scheduler, each in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


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
