"""The lab of the offload: facets (`derive` computes their values from what the driver reads), invariants, charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.picture import Arrow, Chart, ChartCell, Level, Track
from grader.core.rubric import Facet, Rule
from grader.labs.python_lab import Described, python_lab, stand_in
from reference.operation import Operation, Trace

_MANAGER = Path(__file__).parents[3] / "reference" / "offload" / "block_manager.py"
_OF_MANAGERS = {"table", "queue", "tracking", "lists", "error", "failing"}
"""The facets that depend on the manager."""

FACETS = (
    Facet("error", path="accepted"),
    Facet("reply", path="reply"),
    Facet("failing", path="refused"),
    Facet("table", per="sequence", path="state.tables", title="blocks"),
    Facet("queue", path="state.free", title="free blocks, head to tail"),
    Facet("tracking", per="sequence", title="prefilled blocks, P, start"),
    Facet("storage", per="buffer", title="rows, width, place", of_call=True),
    Facet("lists", sentences=True, title="lists given away"),
    Facet("cpu", sentences=True, title="CPU cache"),
    Facet("decode", sentences=True, title="decode buffers"),
    Facet("flush", sentences=True),
    Facet("ring", path="state.loads", title="[layer, buffer] of each load", of_call=True),
    Facet("ring", per="layer and cache", path="state.load_rows", title="rows loaded", of_call=True),
    Facet("ring", path="state.ring", sentences=True, title="ring"),
    Facet("race-free", path="state.race_free", sentences=True, title="race on freed memory"),
    Facet("race-workspace", path="state.race_workspace", sentences=True, title="race on workspace"),
    Facet("race-reload", path="state.race_reload", sentences=True, title="race of a load into the ring"),
    Facet("race-ring", path="state.race_ring", sentences=True, title="race on the ring"),
    Facet("race-cache", path="state.race_cache", sentences=True, title="race on the CPU cache"),
    Facet("race-decode", path="state.race_decode", sentences=True, title="race on the decode buffers"),
    Facet("race-logits", path="state.race_logits", sentences=True, title="race on the host's logits"),
    Facet("overlap", sentences=True),
    Facet("memory-layers", path="state.memory_layers", sentences=True, title="device memory for K/V"),
    Facet("memory-left", path="state.memory_left", sentences=True, title="memory left behind"),
    Facet("memory", sentences=True, title="device memory"),
    Facet("values", sentences=True),
    Facet("logits", sentences=True),
    Facet("calls", title="device calls of a call that raised", of_call=True),
)


def lab() -> Lab:
    """Return the lab."""
    return python_lab(
        Path(__file__).parent,
        "Layer-wise CPU offload of the KV cache",
        "grader.labs.offload.oracle:Offload",
        FACETS,
        traces="grader.labs.offload.traces",
        circumstances="grader.labs.offload.oracle:circumstances",
        invariants=broken,
        charts=charts,
        derive="grader.labs.offload.derive:derive",
        smalls="grader.labs.offload.small:SMALL",
        mend=mend,
    )


def mend(case: Case, rule: Rule, wrong: frozenset[str]) -> Mapping[int, Operation]:
    """Give new runners the reference's manager; return {} if the rule judges managers, or if `runner` goes wrong."""
    if rule.facets & _OF_MANAGERS or "runner" in wrong:
        return {}
    runners = [number for number, operation in enumerate(case.trace.operations) if operation.name == "runner"]
    source = stand_in(_MANAGER, "HybridKVCacheManager") if runners else ""
    return {number: Operation(name="_stand_in", arguments=(source,)) for number in runners if source}


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
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
"""The place of the block size in the settings."""


def _of_tracking(seq: str, length: int, entry: list[Any], first: list[Any], *, size: int) -> Iterator[str]:
    prefilled, offloaded, start = entry
    if offloaded > length:
        yield f"{seq} has {offloaded} offloaded tokens of {length}"
    if start != offloaded % size:
        yield f"{seq} has P {offloaded}, but start {start} with blocks of {size}"
    if prefilled != first:
        yield f"{seq} has P {offloaded}, but its prefilled blocks are {prefilled}"


_SIGNS = {
    "C": "copy",
    "K": "kernel",
    "A": "alloc",
    "F": "free",
    "R": "record",
    "W": "wait",
    "S": "the host waits",
    "H": "the host reads",
}
_CALLS = ("offload", "load", "use", "store", "flush", "prefill", "decode", "finish")
_KIB = 1024


def charts(trace: Trace, records: Sequence[Described], operation: int) -> Iterator[Chart]:
    """Yield a chart of streams and one of memory use, each only if it shows a mistake; no charts for the reference."""
    notes = [record.get("notes", {}) for record in records]
    if 0 < operation <= len(notes) and notes[operation - 1].get("lanes"):
        yield _lanes(notes[operation - 1]["lanes"], operation)
    shown = [
        (number, note["memory"])
        for number, (call, note) in enumerate(zip(trace.operations, notes, strict=False), 1)
        if call.name in _CALLS and "memory" in note
    ]
    if any(used > limit for _, (used, limit) in shown):
        yield Chart(
            title="Device memory beyond the storage, the most in each call, in KiB",
            legend={},
            columns=tuple(str(number) for number, _ in shown),
            operations=tuple(number for number, _ in shown),
            levels=(
                Level(
                    label="used / allowed",
                    values=tuple(-(-used // _KIB) for _, (used, _) in shown),
                    most=max(1, min(limit for _, (_, limit) in shown) // _KIB),
                ),
            ),
        )


def _lanes(lanes: Mapping[str, Any], operation: int) -> Chart:
    """Draw calls as columns, each in the row of its stream. The column headings are line numbers of the submission."""
    calls = lanes["calls"]
    host = len(lanes["streams"])
    rows = [stream if stream >= 0 else host for stream, _, _ in calls]
    places = [ChartCell(column, row) for column, row in enumerate(rows)]
    marks = [places[number] for number in lanes["pair"]]
    cells = [sign for _, sign, _ in calls]
    columns = [str(line) if line else "–" for _, _, line in calls]
    if len(marks) == 1:  # the host, which reads when the operation ends, is the second
        rows, cells, columns = [*rows, host], [*cells, "H"], [*columns, "end"]
        marks.append(ChartCell(len(rows) - 1, host))
    used = sorted({*rows})
    return Chart(
        title=f"Streams in operation {operation}, by your lines: the marked calls have no order, or too much of it",
        legend=_SIGNS,
        columns=tuple(columns),
        tracks=tuple(
            Track(
                label="host" if row == host else lanes["streams"][row] or f"stream {row}",
                cells=tuple(sign if own == row else "" for own, sign in zip(rows, cells, strict=True)),
            )
            for row in used
        ),
        marks=tuple(ChartCell(mark.column, used.index(mark.track)) for mark in marks),
        arrows=tuple(
            Arrow(ChartCell(start, used.index(rows[start])), ChartCell(end, used.index(rows[end])))
            for start, end in lanes["arrows"]
        ),
    )
