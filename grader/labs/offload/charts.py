"""The charts of a run: streams as lanes around two calls that nothing orders, and device memory from call to call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grader.core.chart import Arrow, Chart, ChartCell, Level, Track
from reference.operation import Trace

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
_Record = Mapping[str, Any]


def charts(trace: Trace, records: Sequence[_Record], operation: int) -> Iterator[Chart]:
    """Yield both charts of a program's run; of the reference's there is nothing to show."""
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
    """Draw calls as columns, each in the row of its stream; columns are called by the submission's lines."""
    calls = lanes["calls"]
    host = len(lanes["streams"])
    rows = [stream if stream >= 0 else host for stream, _, _ in calls]
    places = [ChartCell(column, row) for column, row in enumerate(rows)]
    marks = [places[number] for number in lanes["pair"]]
    cells = [sign for _, sign, _ in calls]
    columns = [str(line) if line else "–" for _, _, line in calls]
    if len(marks) == 1:  # the other is the host, which reads when the call returns
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
