"""The lab of the hybrid allocator: what its driver reads, by name, and what can never be so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from math import lcm
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.rubric import Facet
from grader.labs.hybrid.charts import charts
from grader.labs.python_lab import python_lab

_ALLOCATE, _CONFIG = ("admit", "step"), ("config",)
FACETS = (
    Facet("fits", path="accepted", calls=_ALLOCATE),
    Facet("page", path="accepted", calls=("alloc",)),
    Facet("error", path="accepted"),
    Facet("hits", path="reply.0", calls=("match",)),
    Facet("tokens", path="reply.1", calls=("match",), title="tokens of the hit"),
    Facet("new", path="reply", calls=_ALLOCATE, title="new blocks"),
    Facet("page", path="reply", calls=("alloc",)),
    Facet("groups", path="reply.groups", calls=_CONFIG),
    Facet("groups", path="reply.tensors", calls=_CONFIG, title="tensors"),
    Facet("groups", path="reply.padding_layers", calls=_CONFIG, title="padding_layers"),
    Facet("sizes", path="reply", calls=_CONFIG),
    Facet("reply", path="reply"),
    Facet("tables", per="request", title="tables", absent="empty"),
    Facet("ref", per="block", title="ref_cnt", absent="0"),
    Facet("index", per="text/group", title="index"),
    Facet("free", title="free queue, head to tail"),
    Facet("geometry", title="large_page_bytes, num_large_pages, ratio"),
    Facet("free_large_pages"),
    Facet("owner", per="large page", title="owner"),
    Facet("slots", per="type", title="slots"),
    Facet("intact", title="arguments are as they were"),
)


def lab() -> Lab:
    """Return the lab."""
    return python_lab(
        Path(__file__).parent,
        "A hybrid memory allocator: layers of different kinds in one memory",
        "reference.hybrid:Hybrid",
        FACETS,
        traces="grader.labs.hybrid.traces",
        circumstances="grader.labs.hybrid.situations:circumstances",
        invariants=broken,
        charts=charts,
        smalls="grader.labs.hybrid.small:SMALL",
    )


_NULL = 0


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
    if state["settings"]:
        yield from _counts(state)
        yield from _hit(state)
        for name in sorted(state["tables"].keys() - state["requests"].keys()):
            yield f"request {name} is freed but its tables still have blocks"
        for name in state["requests"]:
            for group_id, table in enumerate(state["tables"].get(name) or [[] for _ in state["settings"][1]]):
                yield from _table(state, name, group_id, table)
    if state["sizes"]:
        yield from _large_pages(state)
        yield from _overlaps(state)


def _counts(state: dict[str, Any]) -> Iterator[str]:
    places = [(block, group) for tables in state["tables"].values() for group, t in enumerate(tables) for block in t]
    users = Counter(block for block, _ in places if block != _NULL)
    for block in sorted({*users, *map(int, state["ref"])}):
        count = state["ref"].get(str(block), 0)
        if count != users[block]:
            yield f"block {block} is in {users[block]} tables but its ref_cnt is {count}"
        groups = sorted({str(group) for other, group in places if other == block})
        if len(groups) > 1:
            yield f"block {block} is in tables of groups {' and '.join(groups)}"


def _hit(state: dict[str, Any]) -> Iterator[str]:
    """What `match` returned, if it was the last call."""
    if not state["looked"]:
        return
    name, _, tokens = state["looked"]
    alignment = lcm(*(block_size for _, block_size, _ in state["settings"][1]))
    if tokens % alignment:
        yield f"a hit of {tokens} tokens is no multiple of {alignment}"
    if tokens >= len(state["requests"][name][0]):
        yield f"a hit of {tokens} tokens leaves no token of request {name} to compute"


def _table(state: dict[str, Any], name: str, group_id: int, table: list[int]) -> Iterator[str]:
    kind, block_size, window = state["settings"][1][group_id]
    tokens, num_encoder_tokens, computed = state["requests"][name]
    where = f"request {name}, group {group_id}"
    if kind in ("full", "cross") and _NULL in table:
        yield f"{where}: a null in a {kind} table"
    elif _NULL in table[table.count(_NULL) :]:
        yield f"{where}: a null stands after a block"
    slots = num_encoder_tokens if kind == "cross" and computed else computed
    if len(table) != -(-slots // block_size):
        has = f"has {slots} encoder tokens" if kind == "cross" and computed else f"has computed {computed}"
        yield f"{where}: the table covers {len(table) * block_size} tokens, the request {has}"
    needed = max(0, {"sliding": computed - window + 1, "mamba": computed - 1}.get(kind, 0))
    for position, block in enumerate(table):
        end = (position + 1) * block_size
        if block == _NULL and kind in ("sliding", "mamba") and end > needed:
            yield f"{where}: position {position} is released although token {needed} is still needed"
        for key in (key for key, blocks in state["index"].items() if block in blocks):
            if key != f"{tokens[:end]}/{group_id}":
                yield f"{where}: block {block} stands at position {position} but is indexed as {key}"


def _large_pages(state: dict[str, Any]) -> Iterator[str]:
    number, ratio = state["geometry"][1:]
    cut = [
        (int(small_id) // ratio[page_type], page_type, slot)
        for page_type, slots in state["slots"].items()
        for small_id, slot in slots.items()
    ]
    for page in range(number):
        types = {page_type for other, page_type, _ in cut if other == page}
        is_free, is_owned = page in state["free_large_pages"], str(page) in state["owner"]
        if is_free and (types or is_owned):
            yield f"large page {page} is free and has {'slots' if types else 'an owner'}"
        if state["free_large_pages"].count(page) > 1:
            yield f"large page {page} is free twice"
        if not is_free and not is_owned:
            yield f"large page {page} is lost: neither free nor in use"
        if is_owned and all(slot == "empty" for other, _, slot in cut if other == page):
            yield f"large page {page} holds nothing but is not free"
        if len(types) > 1:
            yield f"large page {page} belongs to two types"


def _overlaps(state: dict[str, Any]) -> Iterator[str]:
    """Slots of different types that hold something in the same bytes."""
    ranges = [
        (page_type, int(small_id), int(small_id) * state["sizes"][page_type])
        for page_type, slots in state["slots"].items()
        for small_id, slot in slots.items()
        if slot != "empty"
    ]
    for (page_type, small_id, start), (other_type, other_id, other_start) in combinations(ranges, 2):
        end, other_end = start + state["sizes"][page_type], other_start + state["sizes"][other_type]
        if page_type != other_type and start < other_end and other_start < end:
            yield f"page {small_id} of type {page_type} overlaps page {other_id} of type {other_type}"
