"""How Homework 3 is shown: a state as the parts of a picture, abbreviations in a trace, and what a poke does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grader.core.picture import PanelShape, StatePart
from grader.labs.paged_kv.judging.describe import UNTOUCHED
from reference.operation import Operation
from reference.paged_kv.constants import KV_PER_BLOCK, L1_PT_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

NOTATION = {
    "seq": "a pointer to the sequence that the call made",
    "@2": "the call gets the engine of that number, others get the first one",
    "@NULL": "the call gets NULL as its engine",
}
"""The meaning of the short words in a trace; `@2` stands for every number."""

_UNTOUCHED = "·"
_COPIED = f"the {UNTOUCHED} word of block "
_TABLE, _NULL = "table", "NULL"


def picture(described: Mapping[str, Any]) -> Iterator[StatePart]:
    """Yield the parts for a described record; each engine has its own parts, with one title in the whole trace."""
    engines: Mapping[int, Mapping[str, Any]] = described["engines"]
    for number, engine in engines.items():
        scope = f"engine @{number}: " if described["slots"] > 1 else ""
        yield _pool(engine, scope)
        yield from _outside(engine, scope)
        if "total_local_blocks" in engine:
            yield from _management(engine, scope)


def _outside(engine: Mapping[str, Any], scope: str) -> Iterator[StatePart]:
    """List what was written outside the blocks, one row per place, because the pool's grid shows only its blocks."""
    if engine["outside"]:
        written = {(0, place): ("written",) for place in engine["outside"][:4]}
        yield StatePart(title=f"{scope}outside the blocks", shape=PanelShape.VALUES, lines=written)


def _management(engine: Mapping[str, Any], scope: str) -> Iterator[StatePart]:
    sequences: Sequence[Mapping[str, Any]] = engine["active_seqs"]
    yield StatePart(
        title=f"{scope}block tables",
        shape=PanelShape.TREE,
        columns=tuple(f"[{entry}]" for entry in range(L2_PT_SIZE)),
        lines={key: cells for sequence in sequences for key, cells in _sequence(sequence)},
    )

    yield StatePart(title=f"{scope}active_seqs", shape=PanelShape.CHAIN, lines=_list(engine, sequences))
    names = ("free_local_blocks", "total_local_blocks")
    counters = {(0, name): (str(engine[name]),) for name in names}
    yield StatePart(title=f"{scope}counters", shape=PanelShape.VALUES, lines=counters)


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


def _pool(engine: Mapping[str, Any], scope: str) -> StatePart:
    """Return a grid with a row for each block: how many sequences use it, then its words."""
    counts = list(map(str, engine.get("ref_count", ())))
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
