"""Texts and drawings of Homework 3: what a poke does, and a state drawn as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from reference.operation import Operation
from reference.paged_kv.constants import KV_PER_BLOCK, L1_PT_SIZE, L2_PT_SIZE, MAX_LOGICAL_BLOCKS

NOTATION = {
    "seq": "a pointer to the sequence that the call made",
    "@2": "the call gets the engine of that number, others get the first one",
    "@NULL": "the call gets NULL as its engine",
}
"""The meaning of the short words in a trace; `@2` stands for every number."""

_WIDTH = 100
_UNTOUCHED = "untouched"
_COPIED = "the untouched word of block "
_MOST_BLOCKS = 24
_MOST_SEQUENCES = 8
_LEAST_RUN = 3
"""The fewest equal neighbours that are drawn as one."""


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


def draw(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield a described record as lines of rich markup, about 100 columns wide."""
    engines: Mapping[int, Mapping[str, Any]] = described["engines"]
    if not engines:
        yield "[dim]no engine yet[/dim]"
    for place, (number, engine) in enumerate(engines.items()):
        if place:
            yield ""
        yield from _engine(number, engine)
    yield from _legend(row for engine in engines.values() for row in _rows(engine["pool"]))


def _engine(number: int, engine: Mapping[str, Any]) -> Iterator[str]:
    if "total_local_blocks" in engine:
        free, total = engine["free_local_blocks"], engine["total_local_blocks"]
        yield f"[bold]engine {number}[/bold]   free_local_blocks {free} of total_local_blocks {total}"
        yield f"  active_seqs   {_ring(engine)}"
        yield from _sequences(engine["active_seqs"])
    else:
        gone = f"does not exist; its pool of {engine['pool_bytes']} bytes is there"
        yield f"[bold]engine {number}[/bold]   [dim]{gone}[/dim]"
    yield from _pool(engine["pool"], engine.get("ref_count"))
    if engine["outside"]:
        yield f"  [red]written outside the blocks: {'; '.join(engine['outside'][:4])}[/red]"


def _ring(engine: Mapping[str, Any]) -> str:
    ids = [str(sequence["seq_id"]) for sequence in engine["active_seqs"]]
    if engine["list"] != "ring":
        return f"{' <-> '.join(['head', *ids])} -> [red]{engine['list']}[/red]"
    if not ids:
        return "head <-> head   [dim](empty: prev and next point to the head itself)[/dim]"
    shown = [*ids[:_MOST_SEQUENCES], "...", *ids[-2:]] if len(ids) > _MOST_SEQUENCES + _LEAST_RUN else ids
    back = "" if engine["mirrored"] else "   [red](but prev leads elsewhere)[/red]"
    return f"{' <-> '.join(['head', *shown, 'head'])}{back}"


def _sequences(sequences: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    most = _MOST_SEQUENCES if len(sequences) > _MOST_SEQUENCES + _LEAST_RUN else len(sequences)
    for sequence in sequences[:most]:
        yield from _sequence(sequence)
    left = len(sequences) - most
    if left:
        yield f"  [dim]... {left - 1} more sequences ...[/dim]"
        yield from _sequence(sequences[-1])


def _sequence(sequence: Mapping[str, Any]) -> Iterator[str]:
    count = sequence["kv_count"]
    logical, offset = divmod(count, KV_PER_BLOCK)
    after = f"block_table[{logical // L2_PT_SIZE}][{logical % L2_PT_SIZE}], offset {offset}"
    if logical >= MAX_LOGICAL_BLOCKS:
        after = "nowhere, it is full"
    yield f"  sequence [bold]{sequence['seq_id']}[/bold]   kv_count {count}   [dim]next record: {after}[/dim]"
    tables: Mapping[int, Any] = sequence["block_table"]
    lines = list(_tables(tables))
    empty = L1_PT_SIZE - len(tables)
    if empty:
        others = "all 16 slots" if not tables else f"the other {empty} slots" if empty > 1 else "the other slot"
        lines.append(f"[dim]{others}  NULL[/dim]")
    for place, line in enumerate(lines):
        yield f"    {'└─' if place == len(lines) - 1 else '├─'} {line}"


def _tables(tables: Mapping[int, Any]) -> Iterator[str]:
    """Yield one line per table; tables that continue one another, all 16 entries used, are drawn as one."""
    width = max(
        (len(str(entry)) for table in tables.values() if not isinstance(table, str) for entry in table),
        default=1,
    )
    for run in _runs(tables):
        first, last = run[0], run[-1]
        if len(run) >= _LEAST_RUN:
            blocks = f"blocks {tables[first][0]} to {tables[last][-1]}, in order"
            yield f"block_table[{first}] to [{last}]  {blocks}"
            continue
        for slot in run:
            table = tables[slot]
            shown = table if isinstance(table, str) else _entries(table, width)
            yield f"block_table[{slot}]{' ' * (slot < 10)}  {shown}"


def _runs(tables: Mapping[int, Any]) -> Iterator[list[int]]:
    run: list[int] = []
    for slot, table in tables.items():
        follows = bool(run) and slot == run[-1] + 1 and _in_order(tables[run[-1]], table)
        if run and not follows:
            yield run
            run = []
        run.append(slot)
    if run:
        yield run


def _in_order(before: Any, table: Any) -> bool:
    """Whether `table` maps the blocks that follow those of `before`."""
    if isinstance(before, str) or isinstance(table, str):
        return False
    start = before[0]
    return [*before, *table] == list(range(start, start + 2 * L2_PT_SIZE)) and start >= 0


def _entries(table: Sequence[int], width: int) -> str:
    if width <= 4:
        return " ".join(f"[dim]{entry:>{width}}[/dim]" if entry < 0 else f"{entry:>{width}}" for entry in table)
    return ", ".join(f"{entry} x{len(list(same))}" if entry < 0 else str(entry) for entry, same in groupby(table))


def _pool(pool: Sequence[Sequence[str]], ref_count: Sequence[int] | None) -> Iterator[str]:
    """Yield the blocks as rows of 16 slots; equal neighbours are one row."""
    rows = _rows(pool)
    wide = max(2, *(len(text) for row in rows for text in row), 2)
    per_line = next(n for n in (16, 8, 4, 2) if 26 + n * (wide + 1) <= _WIDTH or n == 2)
    counts = list(ref_count) if ref_count is not None else []
    counts += [0] * (len(rows) - len(counts))
    keys = [(counts[block], tuple(row)) for block, row in enumerate(rows)]
    if rows:
        head = " ".join(f"{slot:>{wide}}" for slot in range(per_line))
        yield f"  [dim]{'block':>12}  {'ref_count' if ref_count is not None else '':>9}  {head}[/dim]"
    for drawn, ((count, row), blocks) in enumerate(_neighbours(keys)):
        if drawn == _MOST_BLOCKS:
            yield f"  [dim]{'...':>12}  and {len(rows) - blocks[0]} blocks more[/dim]"
            break
        name = str(blocks[0]) if len(blocks) == 1 else f"{blocks[0]} to {blocks[-1]}"
        used = str(count) if ref_count is not None else ""
        for first in range(0, KV_PER_BLOCK, per_line):
            slots = " ".join(_painted(text, wide) for text in row[first : first + per_line])
            label = f"{name:>12}  {used:>9}" if not first else " " * 23
            yield f"  {label}  {slots}"


def _rows(pool: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[slot_text(text, block) for text in slots] for block, slots in enumerate(pool)]


def _neighbours(
    keys: Sequence[tuple[int, tuple[str, ...]]],
) -> Iterator[tuple[tuple[int, tuple[str, ...]], list[int]]]:
    """Yield equal neighbours together when there are at least `_LEAST_RUN` of them, else one by one."""
    block = 0
    for key, same in groupby(keys):
        blocks = list(range(block, block + len(list(same))))
        block += len(blocks)
        if len(blocks) >= _LEAST_RUN:
            yield key, blocks
        else:
            yield from ((key, [number]) for number in blocks)


def slot_text(text: str, block: int) -> str:
    """Return a short text for a word of the pool: a dot where nothing was written, =3 when copied from block 3."""
    if text == _UNTOUCHED:
        return "."
    if text.startswith(_COPIED):
        home = text.removeprefix(_COPIED).split(",")[0]
        return f"={home}" if home != str(block) else "=?"
    return "=?" if _UNTOUCHED in text else text


def _painted(text: str, wide: int) -> str:
    if text == ".":
        return f"[dim]{text:>{wide}}[/dim]"
    return f"[cyan]{text:>{wide}}[/cyan]" if text.startswith("=") else f"[bold]{text:>{wide}}[/bold]"


def _legend(rows: Iterable[Iterable[str]]) -> Iterator[str]:
    seen = {text for row in rows for text in row}
    entries = ["[dim].[/dim] not written yet"] if "." in seen else []
    copied = sorted(text for text in seen if text.startswith("=") and text != "=?")
    if copied:
        entries.append(f"{copied[0]} not written, but copied from block {copied[0][1:]}")
    if "=?" in seen:
        entries.append("=? not written here, but moved from another place")
    if entries:
        yield f"  [dim]{'; '.join(entries)}[/dim]"
