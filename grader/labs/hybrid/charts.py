"""The charts of a run: one pool under groups of layers, tables with their windows, large pages, and what is wasted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grader.core.picture import Chart, Shares, Track
from grader.labs.python_lab import Described, as_list, as_mapping, reply_of, state_of
from reference.operation import Trace

_LETTERS = "ABCDEFGH"
_MOST_BLOCKS, _MOST_PAGES = 16, 12
_NEEDED, _SKIPPED, _NULL, _UNREADABLE = "■", "□", "∅", "?"
_TABLES = {
    _NEEDED: "a block that a later token looks at",
    _SKIPPED: "a block that no later token looks at",
    _NULL: "the null block",
    _UNREADABLE: "no block of the pool",
}
_SLOTS = {"u": "used", "e": "empty", "c": "evictable", "@": "owner", "#": "type", _UNREADABLE: "not readable"}
_SHARES = {"█": "needed", "░": "wasted, or left over"}
_RFC = (
    Shares(label="RFC, mllama", parts=(20.4, 79.6)),
    Shares(label="RFC, Ministral", parts=(43.75, 56.25)),
    Shares(label="RFC, Gemma-2", parts=(75.0, 25.0)),
)
"""What vLLM's RFC 11382 says of a slot for every token in every layer, in percent."""


def charts(trace: Trace, records: Sequence[Described], operation: int) -> Iterator[Chart]:
    """Yield the charts of the parts that a trace is about: each part has operations of its own."""
    names = {other.name for other in trace.operations}
    record = records[operation - 1] if 0 < operation <= len(records) else {}
    if "manager" in names:
        yield _pool(trace, records)
        yield _tables(trace, record, operation)
    if "lcm" in names:
        yield _large_pages(record)
    if names & {"waste", "fit"}:
        yield _waste(trace, records)


def _pool(trace: Trace, records: Sequence[Described]) -> Chart:
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
    """The cell of a block: who uses it, or how free it is."""
    using = users.get(block, [])
    if using:
        letter, names = _LETTERS[using[0][0] % len(_LETTERS)], sorted({name for _, name in using})
        return "!" if len({group for group, _ in using}) > 1 else "".join([letter, *names])
    is_cached = any(block in as_list(blocks) for blocks in as_mapping(state_of(record, "index")).values())
    return "~" if is_cached else "·"


def _users(record: Described) -> dict[int, list[tuple[int, str]]]:
    """Of each block in tables, group and request."""
    users: dict[int, list[tuple[int, str]]] = {}
    for name, tables in as_mapping(state_of(record, "tables")).items():
        for group, table in enumerate(as_list(tables)):
            for block in as_list(table):
                if isinstance(block, int) and block > 0:
                    users.setdefault(block, []).append((group, name))
    return users


def _tables(trace: Trace, record: Described, operation: int) -> Chart:
    """Draw the tables of an operation's requests: positions as columns, and which tokens are still looked at."""
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
    """The cells of a table: a position is needed if any of its tokens is."""
    kind, size, window = group
    skipped = {"sliding": computed - window + 1, "mamba": computed - 1}.get(kind, 0)
    cells = []
    for position, block in enumerate(table):
        if type(block) is not int:
            cells.append(_UNREADABLE)
        elif block == 0:
            cells.append(_NULL)
        else:
            cells.append(f"{_NEEDED if (position + 1) * size > skipped else _SKIPPED}{block}")
    return tuple(cells)


def _computed(record: Described, name: str) -> int:
    request = as_list(as_mapping(state_of(record, "requests")).get(name))
    return request[2] if len(request) == 3 and isinstance(request[2], int) else 0


def _groups(trace: Trace, operation: int) -> Sequence[Any]:
    """The groups of the last manager before or at an operation."""
    groups = _manager(trace, operation)[1]
    return [group for group in groups if isinstance(group, tuple)] if isinstance(groups, tuple) else []


def _manager(trace: Trace, operation: int) -> Sequence[Any]:
    """The arguments of the last manager before or at an operation: blocks, groups, and whether it caches."""
    managers = [other for other in trace.operations[:operation] if other.name == "manager"]
    return managers[-1].arguments if managers else (0, (), False)


def _large_pages(record: Described) -> Chart:
    """Draw large pages as rows: owner, type, and the slots that they are cut into."""
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
    """The cells of a large page."""
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


def _waste(trace: Trace, records: Sequence[Described]) -> Chart:
    """Draw what `waste` says of models, and how much of its budget each policy of `fit` fills."""
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
    """The needed and the wasted part; nothing for what is no fraction from 0 to 1."""
    above, _, below = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not (above.isdecimal() and below.isdecimal() and 0 < int(below) < 10**12 and int(above) <= int(below)):
        return (0, 0)
    return (int(below) - int(above), int(above))
