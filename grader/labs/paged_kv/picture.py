"""How Homework 3 is shown: the parts of a picture of a state, abbreviations in a trace, and sentences for pokes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grader.core.picture import PanelShape, StatePart
from grader.labs.paged_kv.states import UNTOUCHED, pointer_name
from reference.operation import Operation
from reference.paged_kv.constants import KV_PER_BLOCK, L1_PT_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

NOTATION = {
    "seq": "a pointer to the sequence that the call made",
    "@2": "the call gets the engine of that number, others get the first one",
    "@NULL": "the call gets NULL as its engine",
}
"""The meaning of the short words in a trace; `@2` means any number."""

_UNTOUCHED = "·"
_COPIED = f"the {UNTOUCHED} word of block "
_TABLE = "table"


def picture(described: Mapping[str, Any]) -> Iterator[StatePart]:
    """Yield the parts for a described record; each engine has its own parts, whose titles never change in a trace."""
    engines: Mapping[int, Mapping[str, Any]] = described["engines"]
    for number, engine in engines.items():
        scope = f"engine @{number}: " if described["slots"] > 1 else ""
        yield _pool(engine, scope)
        yield from _outside(engine, scope)
        if "total_local_blocks" in engine:
            yield from _management(engine, scope)


def _outside(engine: Mapping[str, Any], scope: str) -> Iterator[StatePart]:
    """List up to 4 words written outside the blocks, a row for each: the pool's grid shows only its blocks."""
    if engine["outside"]:
        written = {(0, place): ("written",) for place in engine["outside"][:4]}
        yield StatePart(title=f"{scope}outside the blocks", shape=PanelShape.VALUES, lines=written)


def _management(engine: Mapping[str, Any], scope: str) -> Iterator[StatePart]:
    yield StatePart(
        title=f"{scope}block tables",
        shape=PanelShape.TREE,
        columns=tuple(f"[{entry}]" for entry in range(L2_PT_SIZE)),
        lines={key: cells for item in engine["sequences"].items() for key, cells in _sequence(*item)},
    )

    yield StatePart(title=f"{scope}active_seqs", shape=PanelShape.CHAIN, lines=_list(engine))
    names = ("free_local_blocks", "total_local_blocks")
    counters = {(0, name): (str(engine[name]),) for name in names}
    yield StatePart(title=f"{scope}counters", shape=PanelShape.VALUES, lines=counters)


def _list(engine: Mapping[str, Any]) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return a row for the list along next, and a row that shows whether prev leads the same way back."""
    ids = [f"seq {seq_id}" for seq_id in engine["active_seqs"]]
    end = pointer_name(engine["next"]) if "next" in engine else "head"
    mirrored = not {"next", "prev"} & engine.keys()
    back = (*reversed(ids), end) if mirrored else ("somewhere else", "?")
    return {(0, "next"): ("head", *ids, end), (0, "prev"): ("head", *back)}


def _sequence(seq_id: str, sequence: Mapping[str, Any]) -> Iterator[tuple[tuple[int, str], tuple[str, ...]]]:
    """Yield rows for the sequence, its L1 table, and each of its L2 tables."""
    name, tables = f"sequence {seq_id}", sequence["block_table"]
    slots = tables if isinstance(tables, list) else [None] * L1_PT_SIZE
    yield (0, name), (f"kv_count {sequence['kv_count']}",)
    yield (1, f"{name}: block_table"), tuple(_TABLE if isinstance(slot, list) else pointer_name(slot) for slot in slots)
    for slot, table in enumerate(slots):
        if isinstance(table, list):
            yield (2, f"{name}: block_table[{slot}]"), tuple(map(str, table))


def _pool(engine: Mapping[str, Any], scope: str) -> StatePart:
    """Return a grid with a row for each block: how many sequences use it, then its words."""
    counts = engine.get("ref_count", [])
    counts = list(map(str, counts)) if isinstance(counts, list) else []
    rows = [tuple(_sign(text, block) for text in slots) for block, slots in enumerate(engine["pool"])]
    lines = {
        (0, f"block {block}"): (
            counts[block] if block < len(counts) else "",
            *(rows[block] if block < len(rows) else ()),
        )
        for block in range(max(len(rows), len(counts)))
    }
    return StatePart(
        title=f"{scope}pool and ref_count",
        shape=PanelShape.GRID,
        columns=("ref_count", *(f"slot {slot}" for slot in range(KV_PER_BLOCK))),
        lines=lines,
        legend={sign: _meaning(sign) for row in rows for sign in row if sign == _UNTOUCHED or sign.startswith("=")},
    )


def _sign(text: str, block: int) -> str:
    """Return a short text for a word of the pool: a dot where nothing was written, =3 when copied from block 3."""
    if text == UNTOUCHED:
        return _UNTOUCHED
    if text.startswith(_COPIED):
        home = text.removeprefix(_COPIED).split(",")[0]
        return f"={home}" if home != str(block) else "=?"
    return "=?" if UNTOUCHED in text else text


def _meaning(sign: str) -> str:
    if sign == _UNTOUCHED:
        return "untouched"
    home = sign.removeprefix("=")
    return f"copied from block {home}" if home.isdigit() else "moved from another place"


def describe_poke(operation: Operation) -> str:
    """Return one sentence for students: what the grader itself does to the structures here, and why."""
    seq_id, *places = operation.numbers
    sequence = f"sequence {seq_id}" + ("" if operation.target == 1 else f" of engine {operation.target}")
    if operation.name == "move_l2":
        source, target = places
        return (
            f"Here the grader moves an L2 table of {sequence} from block_table[{source}] to "
            f"block_table[{target}] and leaves NULL behind, because the handout says that a sequence may "
            "have empty slots in between (Task 2)."
        )
    if operation.name == "unmap":
        logical = places[0]
        entry = f"block_table[{logical // L2_PT_SIZE}][{logical % L2_PT_SIZE}]"
        return (
            f"Here the grader takes logical block {logical} away from {sequence}: {entry} becomes -1 and its "
            "block loses one reference, because the handout says that blocks may be scattered (Task 2)."
        )
    logical, offset = divmod(places[0], KV_PER_BLOCK)
    where = f"goes to logical block {logical}, offset {offset}"
    if logical >= MAX_LOGICAL_BLOCKS:
        where = f"needs logical block {logical}, which does not exist"
    return (
        f"Here the grader sets kv_count of {sequence} to {places[0]}, so that the next append {where}, "
        "without all the appends before it, as in the handout's example with record 613 (Part 2.2)."
    )
