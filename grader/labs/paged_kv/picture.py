"""A state of Homework 3 as the parts of a picture: counters, list, block tables as trees, the pool as a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grader.core.picture import Part, Shape
from grader.labs.paged_kv.drawing import slot_text
from reference.paged_kv.constants import KV_PER_BLOCK, L1_PT_SIZE, L2_PT_SIZE

_UNTOUCHED = "·"
_TABLE, _NULL = "table", "NULL"


def picture(described: Mapping[str, Any]) -> Iterator[Part]:
    """Yield the parts for a described record; each engine has its own parts."""
    engines: Mapping[int, Mapping[str, Any]] = described["engines"]
    for number, engine in engines.items():
        of = f" of engine {number}" if len(engines) > 1 or number > 1 else ""
        yield _pool(engine, of)
        yield from _outside(engine, of)
        if "total_local_blocks" in engine:
            yield from _management(engine, of)


def _outside(engine: Mapping[str, Any], of: str) -> Iterator[Part]:
    """List what was written outside the blocks, one row per place, because the pool's grid shows only its blocks."""
    if engine["outside"]:
        written = {(0, place): ("written",) for place in engine["outside"][:4]}
        yield Part(title=f"outside the blocks{of}", shape=Shape.VALUES, lines=written)


def _management(engine: Mapping[str, Any], of: str) -> Iterator[Part]:
    sequences: Sequence[Mapping[str, Any]] = engine["active_seqs"]
    yield Part(
        title=f"block tables{of}",
        shape=Shape.TREE,
        columns=tuple(f"[{entry}]" for entry in range(L2_PT_SIZE)),
        lines={key: cells for sequence in sequences for key, cells in _sequence(sequence)},
    )

    yield Part(title=f"active_seqs{of}", shape=Shape.CHAIN, lines=_list(engine, sequences))
    names = ("free_local_blocks", "total_local_blocks")
    counters = {(0, name): (str(engine[name]),) for name in names}
    yield Part(title=f"counters{of}", shape=Shape.VALUES, lines=counters)


def _list(engine: Mapping[str, Any], sequences: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return a row along next, and a row that shows whether prev leads the same way back."""
    ids = [f"seq {sequence['seq_id']}" for sequence in sequences]
    end = "head" if engine["list"] == "ring" else str(engine["list"])
    back = tuple(reversed(ids)) if engine["mirrored"] else ("somewhere else",)
    return {
        (0, "next"): ("head", *ids, end),
        (0, "prev"): ("head", *back, end if engine["mirrored"] else "?"),
    }


def _sequence(sequence: Mapping[str, Any]) -> Iterator[tuple[tuple[int, str], tuple[str, ...]]]:
    """Yield rows for the sequence, its L1 table, and each of its L2 tables."""
    name = f"sequence {sequence['seq_id']}"
    tables: Mapping[int, Any] = sequence["block_table"]
    yield (0, name), (f"kv_count {sequence['kv_count']}",)
    l1 = tuple(_l1(tables.get(slot)) for slot in range(L1_PT_SIZE))
    yield (1, f"{name}: block_table"), l1
    for slot, table in tables.items():
        if not isinstance(table, str):
            yield (2, f"{name}: block_table[{slot}]"), tuple(map(str, table))


def _l1(table: Any) -> str:
    if table is None:
        return _NULL
    return table if isinstance(table, str) else _TABLE


def _pool(engine: Mapping[str, Any], of: str) -> Part:
    """Return a grid with a row for each block: how many sequences use it, then its 16 words."""
    counts = list(map(str, engine.get("ref_count", ())))
    rows = [tuple(_sign(text, block) for text in slots) for block, slots in enumerate(engine["pool"])]
    lines = {
        (0, f"block {block}"): (
            counts[block] if block < len(counts) else "",
            *(rows[block] if block < len(rows) else ()),
        )
        for block in range(max(len(rows), len(counts)))
    }
    return Part(
        title=f"pool and ref_count{of}",
        shape=Shape.GRID,
        columns=("ref_count", *(f"slot {slot}" for slot in range(KV_PER_BLOCK))),
        lines=lines,
        legend={sign: _meaning(sign) for row in rows for sign in row if sign == _UNTOUCHED or sign.startswith("=")},
    )


def _sign(text: str, block: int) -> str:
    sign = slot_text(text, block)
    return _UNTOUCHED if sign == "." else sign


def _meaning(sign: str) -> str:
    if sign == _UNTOUCHED:
        return "untouched"
    home = sign.removeprefix("=")
    return f"copied from block {home}" if home.isdigit() else "moved from another place"
