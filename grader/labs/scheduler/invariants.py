"""What can never be so in the state of a scheduler, each in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["broken"]


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
    if not state["settings"]:
        return
    running, waiting = state["running"], state["waiting"]
    for name, (status, computed, _, _) in state["req"].items():
        places = running.count(name) + waiting.count(name)
        if status != "FINISHED" and places == 0:
            yield f"request {name} is lost: neither waiting nor running"
        if places > 1:
            yield f"request {name} is in two places"
        if name in waiting and name in state["tables"]:
            yield f"request {name} waits but keeps its blocks"
        if name in waiting and computed != 0:
            yield f"request {name} waits with {computed} computed tokens"
    if len(running) > state["settings"][3]:
        yield f"{len(running)} requests run, at most {state['settings'][3]} may"
    if sum(state["scheduled"].values()) > state["settings"][4]:
        yield f"more tokens are scheduled than a step may have ({state['settings'][4]})"
