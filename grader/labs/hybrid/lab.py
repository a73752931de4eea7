"""The lab of the hybrid allocator: its facets, its invariants, and the charts of a run.

The charts show the pool that all groups of layers share, tables with their windows, large pages, and what is wasted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import lcm
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.picture import Chart, Shares, Track
from grader.core.rubric import Facet
from grader.labs.python_lab import Described, as_list, as_mapping, python_lab, reply_of, state_of
from reference.operation import Trace

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
        "grader.labs.hybrid.oracle:HybridOracle",
        FACETS,
        traces="grader.labs.hybrid.traces",
        circumstances="grader.labs.hybrid.oracle:circumstances",
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
    """Yield a sentence if the last call was a `match` that returned something impossible."""
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
    """Yield a sentence for slots of different types that use the same bytes."""
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


_LETTERS = "ABCDEFGH"
_MOST_BLOCKS, _MOST_PAGES = 16, 12
_NEEDED, _SKIPPED, _NULL_BLOCK, _UNREADABLE = "■", "□", "∅", "?"
_TABLES = {
    _NEEDED: "a block that a later token looks at",
    _SKIPPED: "a block that no later token looks at",
    _NULL_BLOCK: "the null block",
    _UNREADABLE: "no block of the pool",
}
_SLOTS = {"u": "used", "e": "empty", "c": "evictable", "@": "owner", "#": "type", _UNREADABLE: "not readable"}
_SHARES = {"█": "needed", "░": "wasted, or left over"}
_RFC = (
    Shares(label="RFC, mllama", parts=(20.4, 79.6)),
    Shares(label="RFC, Ministral", parts=(43.75, 56.25)),
    Shares(label="RFC, Gemma-2", parts=(75.0, 25.0)),
)
"""The shares in percent, from vLLM's RFC 11382, if every token has a slot in every layer."""


def charts(trace: Trace, records: Sequence[Described], operation: int) -> Iterator[Chart]:
    """Yield a chart for each part of the handout that the trace has calls of."""
    names = {other.name for other in trace.operations}
    record = records[operation - 1] if 0 < operation <= len(records) else {}
    if "manager" in names:
        yield _pool_chart(trace, records)
        yield _tables_chart(trace, record, operation)
    if "lcm" in names:
        yield _large_pages_chart(record)
    if names & {"waste", "fit"}:
        yield _waste_chart(trace, records)


def _pool_chart(trace: Trace, records: Sequence[Described]) -> Chart:
    """Draw blocks as rows and operations as columns: the letter of the group that uses a block, and the request."""
    kinds = [group[0] for group in _groups(trace, len(trace.operations))]
    legend = {
        letter: f"group {number}: {kind}, and the request"
        for number, (letter, kind) in enumerate(zip(_LETTERS, kinds, strict=False))
    }
    legend |= {"~": "free, but can still be found", "·": "free", "!": "used by two tables of different groups"}
    counts = [_manager(trace, number)[0] for number in range(1, len(records) + 1)]
    most = max((count for count in counts if isinstance(count, int)), default=0)
    shown = [number for number, other in enumerate(trace.operations[: len(records)], 1) if other.name in _CHANGING]
    cells = {number: _users(records[number - 1]) for number in shown}
    return Chart(
        title="The pool, after each operation",
        legend=legend,
        columns=tuple(map(str, shown)),
        operations=tuple(shown),
        tracks=tuple(
            Track(
                label=f"block {block}",
                cells=tuple(_block(cells[number], records[number - 1], block) for number in shown),
            )
            for block in range(1, min(most, _MOST_BLOCKS + 1))
        ),
    )


_CHANGING = ("admit", "step", "free", "preempt", "evict")


def _block(users: Mapping[int, list[tuple[int, str]]], record: Described, block: int) -> str:
    """Return the cell of a block: its users, or whether a free block is cached."""
    using = users.get(block, [])
    if using:
        letter, names = _LETTERS[using[0][0] % len(_LETTERS)], sorted({name for _, name in using})
        return "!" if len({group for group, _ in using}) > 1 else "".join([letter, *names])
    is_cached = any(block in as_list(blocks) for blocks in as_mapping(state_of(record, "index")).values())
    return "~" if is_cached else "·"


def _users(record: Described) -> dict[int, list[tuple[int, str]]]:
    """Return for each block the group and the request of each of its uses."""
    users: dict[int, list[tuple[int, str]]] = {}
    for name, tables in as_mapping(state_of(record, "tables")).items():
        for group, table in enumerate(as_list(tables)):
            for block in as_list(table):
                if isinstance(block, int) and block > 0:
                    users.setdefault(block, []).append((group, name))
    return users


def _tables_chart(trace: Trace, record: Described, operation: int) -> Chart:
    """Draw the tables after an operation: positions as columns, and which blocks are still needed."""
    groups = _groups(trace, operation)
    tables = [
        (f"{name}, group {number}: {group[0]}", _row(group, as_list(table), _computed(record, name)))
        for name, of_request in as_mapping(state_of(record, "tables")).items()
        for number, (group, table) in enumerate(zip(groups, as_list(of_request), strict=False))
    ]
    width = max((len(cells) for _, cells in tables), default=0)
    return Chart(
        title=f"Block tables after operation {operation}, position by position",
        legend=_TABLES,
        columns=tuple(map(str, range(width))),
        tracks=tuple(Track(label=label, cells=(*cells, *[""] * (width - len(cells)))) for label, cells in tables),
    )


def _row(group: Sequence[Any], table: Sequence[Any], computed: int) -> tuple[str, ...]:
    """Return the cells of a table: a position is needed if any of its tokens is needed."""
    kind, size, window = group
    skipped = {"sliding": computed - window + 1, "mamba": computed - 1}.get(kind, 0)
    cells = []
    for position, block in enumerate(table):
        if type(block) is not int:
            cells.append(_UNREADABLE)
        elif block == 0:
            cells.append(_NULL_BLOCK)
        else:
            cells.append(f"{_NEEDED if (position + 1) * size > skipped else _SKIPPED}{block}")
    return tuple(cells)


def _computed(record: Described, name: str) -> int:
    request = as_list(as_mapping(state_of(record, "requests")).get(name))
    return request[2] if len(request) == 3 and isinstance(request[2], int) else 0


def _groups(trace: Trace, operation: int) -> Sequence[Any]:
    """Return the groups of the last manager up to an operation."""
    groups = _manager(trace, operation)[1]
    return [group for group in groups if isinstance(group, tuple)] if isinstance(groups, tuple) else []


def _manager(trace: Trace, operation: int) -> Sequence[Any]:
    """Return the arguments of the last manager up to an operation: blocks, groups, and whether it caches."""
    managers = [other for other in trace.operations[:operation] if other.name == "manager"]
    return managers[-1].arguments if managers else (0, (), False)


def _large_pages_chart(record: Described) -> Chart:
    """Draw large pages as rows: owner, type, and slots."""
    geometry = as_list(state_of(record, "geometry"))
    ratios = as_mapping(geometry[2]) if len(geometry) == 3 else {}
    number = geometry[1] if len(geometry) == 3 and isinstance(geometry[1], int) else 0
    width = max((ratio for ratio in ratios.values() if isinstance(ratio, int)), default=0)
    width = max(0, min(width, 24))
    return Chart(
        title="Large pages after the operation",
        legend=_SLOTS,
        columns=("owner", "type", *(f"slot {place}" for place in range(width))),
        tracks=tuple(
            Track(label=f"large page {page}", cells=_page(record, page, ratios, width))
            for page in range(max(0, min(number, _MOST_PAGES)))
        ),
    )


def _page(record: Described, page: int, ratios: Mapping[str, Any], width: int) -> tuple[str, ...]:
    """Return the cells of a large page."""
    owner = as_mapping(state_of(record, "owner")).get(str(page))
    for name, slots in as_mapping(state_of(record, "slots")).items():
        ratio = ratios.get(name)
        ids = range(page * ratio, (page + 1) * ratio) if isinstance(ratio, int) and ratio > 0 else range(0)
        own = as_mapping(slots)
        if any(str(small_id) in own for small_id in ids):
            cells = [_slot(own.get(str(small_id)), small_id) for small_id in ids][:width]
            return (f"@{owner or '–'}", f"#{name}", *cells, *[""] * (width - len(cells)))
    return ("",) * (2 + width)


def _slot(slot: object, small_id: int) -> str:
    if isinstance(slot, list) and len(slot) == 2:
        return f"c{small_id} {slot[0]}/{slot[1]}"
    return f"{slot[:1]}{small_id}" if slot in ("used", "empty") else _UNREADABLE if slot is not None else ""


def _waste_chart(trace: Trace, records: Sequence[Described]) -> Chart:
    """Draw the waste of models, and how much of its budget each policy of `fit` fills."""
    bars = []
    for number, (operation, record) in enumerate(zip(trace.operations, records, strict=False), 1):
        returned = reply_of(record)
        if operation.name == "waste":
            bars.append(Shares(label=f"{number}: waste", parts=_of_a_fraction(returned)))
        elif operation.name == "fit":
            filled, budget = as_list(returned)[1:2], operation.arguments[1]
            if isinstance(budget, int) and filled and type(filled[0]) is int and 0 <= filled[0] <= budget:
                bars.append(Shares(label=f"{number}: {operation.arguments[0]}", parts=(filled[0], budget - filled[0])))
    is_model = any(operation.name == "waste" for operation in trace.operations)
    return Chart(title="Needed and wasted", legend=_SHARES, bars=tuple(bars), known=_RFC if is_model else ())


def _of_a_fraction(value: object) -> tuple[float, ...]:
    """Return the needed and the wasted part; zeros for a value that is no fraction from 0 to 1."""
    above, _, below = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not (above.isdecimal() and below.isdecimal() and 0 < int(below) < 10**12 and int(above) <= int(below)):
        return (0, 0)
    return (int(below) - int(above), int(above))
