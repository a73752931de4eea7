"""The charts of a run: the schedule, step by step, and where the memory of a simulation went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from grader.core.chart import Chart, Level, Shares, Track
from grader.labs.reported import Described, as_list, as_mapping, reply_of, state_of
from reference.operation import Trace

_SIGNS = {
    "P": "computes that many tokens of its prompt, or of what was lost",
    "D": "computes its newest token",
    "=": "runs, but computes nothing",
    "·": "waits",
    "x": "preempted",
    "?": "not readable",
}
_PARTS = {
    "█": "holds tokens",
    "▒": "reserved, will be used",
    "░": "never used (internal)",
    "·": "free or lost (external)",
}
_PAPER = {
    "max": ("paper, Orca (Max)", (20.4, 13.3, 57.3, 8.9)),
    "pow2": ("paper, Orca (Pow2)", (26.8, 17.9, 13.6, 41.6)),
    "oracle": ("paper, Orca (Oracle)", (38.2, 25.2, 0.0, 36.6)),
    "paged": ("paper, vLLM", (96.3, 0.0, 3.7, 0.0)),
}
"""Figure 2 of *Efficient Memory Management for Large Language Model Serving with PagedAttention* (SOSP 2023), percent.
Of vLLM it gives the first share only."""


def charts(trace: Trace, records: Sequence[Described], _: int) -> Iterator[Chart]:
    """Yield a chart of the steps, if there are any, and one of the simulations, if there are any."""
    played = list(zip(trace.operations, records, strict=False))
    steps = [(place, record) for place, (operation, record) in enumerate(played) if operation.name == "schedule"]
    if any(operation.name == "schedule" for operation in trace.operations):
        yield _schedule(steps, records)
    bars = [
        Shares(label=f"{number}: {operation.arguments[0]}", parts=_totals(record))
        for number, (operation, record) in enumerate(played, start=1)
        if operation.name == "simulate" and any(_totals(record))
    ]
    if any(operation.name == "simulate" for operation in trace.operations):
        used = {str(operation.arguments[0]) for operation in trace.operations if operation.name == "simulate"}
        known = tuple(Shares(label=label, parts=parts) for policy, (label, parts) in _PAPER.items() if policy in used)
        yield Chart(title="Where the memory went, all steps together", legend=_PARTS, bars=tuple(bars), known=known)


def _schedule(steps: Sequence[tuple[int, Described]], records: Sequence[Described]) -> Chart:
    """Draw requests as rows and steps as columns; below them the blocks in use."""
    names = dict.fromkeys(name for _, record in steps for name in as_mapping(state_of(record, "req")))
    before = [records[place - 1] if place else record for place, record in steps]
    usable = [_usable(record) for _, record in steps]
    return Chart(
        title="Schedule",
        legend=_SIGNS,
        columns=tuple(str(number) for number in range(1, len(steps) + 1)),
        operations=tuple(place + 1 for place, _ in steps),
        tracks=tuple(
            Track(
                label=name,
                cells=tuple(_cell(name, record, earlier) for (_, record), earlier in zip(steps, before, strict=True)),
            )
            for name in names
        ),
        levels=(
            Level(
                label="blocks in use",
                values=tuple(_blocks_in_use(record) for _, record in steps),
                most=max(usable, default=0),
            ),
        )
        if steps
        else (),
    )


def _cell(name: str, record: Described, before: Described) -> str:
    """What a step did with a request."""
    returned = reply_of(record)
    plan: Sequence[Any] = returned if isinstance(returned, list) and len(returned) == 5 else ([],) * 5
    preempted = plan[3] if isinstance(plan[3], list) else []
    request = as_mapping(state_of(record, "req")).get(name)
    tokens = next((pair[1] for pair in _pairs(plan[0]) if pair[0] == name), None)
    if tokens is not None:
        return _computes(tokens, as_mapping(state_of(before, "req")).get(name), request)
    if name in preempted:
        return "x"
    if not isinstance(request, list) or len(request) != 4:
        return ""
    if name in as_list(state_of(record, "waiting")):
        return "·"
    return "=" if name in as_list(state_of(record, "running")) else ""


def _computes(tokens: object, before: object, after: object) -> str:
    """Tell the newest token of a request with output from tokens of its prompt, or computed once more."""
    if not isinstance(tokens, int):
        return "?"
    has_output = isinstance(after, list) and len(after) == 4 and isinstance(after[3], list) and len(after[3]) > 0
    computed = before[1] if isinstance(before, list) and len(before) == 4 else 0
    return "D" if has_output and tokens == 1 and computed else f"P{tokens}"


def _totals(record: Described) -> tuple[float, ...]:
    """The columns of a simulation's rows, each added up; zeros for rows that are none."""
    rows = reply_of(record)
    sums = [0, 0, 0, 0]
    for row in as_list(rows):
        if not isinstance(row, list) or len(row) != 4 or any(type(value) is not int or value < 0 for value in row):
            return (0, 0, 0, 0)
        sums = [total + value for total, value in zip(sums, row, strict=True)]
    return tuple(sums)


def _blocks_in_use(record: Described) -> int:
    tables = as_mapping(state_of(record, "tables")).values()
    return len({block for table in tables for block in as_list(table) if isinstance(block, int)})


def _usable(record: Described) -> int:
    settings = as_list(state_of(record, "settings"))
    return settings[0] - 1 if settings and isinstance(settings[0], int) else 0


def _pairs(value: object) -> list[Sequence[Any]]:
    return [pair for pair in as_list(value) if isinstance(pair, list) and len(pair) == 2]
