"""What can never be so in a manager's state, whatever was called before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each thing that cannot be."""
    if state["kind"] not in ("manager", "runner"):
        return
    blocks, size = state["settings"][-2 if state["kind"] == "manager" else 1], state["settings"][_SIZE[state["kind"]]]
    tables, free = state["tables"], state["free"]
    for block in range(blocks):
        places = [f"{seq}'s table" for seq, table in tables.items() for other in table if other == block]
        places += ["the free blocks"] * free.count(block)
        if len(places) != 1:
            yield f"block {block} is {'nowhere' if not places else 'in ' + ' and in '.join(places)}"
    for seq, length in state["lengths"]:
        table, entry = tables.get(str(seq)), state["tracking"].get(str(seq))
        if table is not None and len(table) != -(-length // size):
            yield f"{seq} has {length} tokens in {len(table)} blocks of {size}"
        if entry is not None:
            yield from _of_tracking(str(seq), length, entry, (table or [])[: -(-entry[1] // size)], size=size)


_SIZE = {"manager": 1, "runner": 2}
"""Where the block size is in the settings."""


def _of_tracking(seq: str, length: int, entry: list[Any], first: list[Any], *, size: int) -> Iterator[str]:
    prefilled, offloaded, start = entry
    if offloaded > length:
        yield f"{seq} has {offloaded} offloaded tokens of {length}"
    if start != offloaded % size:
        yield f"{seq} has P {offloaded}, but start {start} with blocks of {size}"
    if prefilled != first:
        yield f"{seq} has P {offloaded}, but its prefilled blocks are {prefilled}"
