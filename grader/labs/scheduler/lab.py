"""The lab of the scheduler: its facets, its invariants, and the charts of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from grader.assignment.lab import Lab
from grader.core.picture import Chart, Level, Shares, Track
from grader.core.rubric import Facet
from grader.labs.python_lab import Described, as_list, as_mapping, python_lab, reply_of, state_of
from reference.operation import Trace

_STEP, _ROWS = ("schedule",), ("simulate",)
FACETS = (
    Facet("error", path="accepted"),
    Facet("counts", path="reply.0", calls=_STEP, title="scheduled tokens"),
    Facet("admitted", path="reply.1", calls=_STEP, title="new"),
    Facet("admitted", path="reply.2", calls=_STEP, title="resumed"),
    Facet("preempted", path="reply.3", calls=_STEP),
    Facet("counts", path="reply.4", calls=_STEP, title="total"),
    Facet("reply", path="reply", tolerance=1e-9, calls=("max_concurrency",)),
    Facet("held", per="row", path="reply.*.0", calls=_ROWS, title="token"),
    Facet("totals", per="row", path="reply.*.1", calls=_ROWS, title="reserved"),
    Facet("totals", per="row", path="reply.*.2", calls=_ROWS, title="internal"),
    Facet("totals", per="row", path="reply.*.3", calls=_ROWS, title="external"),
    Facet("reply", path="reply"),
    Facet("failing", path="refused"),
    Facet("running"),
    Facet("waiting"),
    Facet("status", per="request", path="state.req.*.0"),
    Facet("computed", per="request", path="state.req.*.1", title="num_computed_tokens"),
    Facet("preemptions", per="request", path="state.req.*.2", title="num_preemptions"),
    Facet("outputs", per="request", path="state.req.*.3"),
    Facet("calls", title="calls on the manager", of_call=True),
    Facet("pool", per="request", path="state.tables", title="blocks"),
    Facet("pool", path="state.free", title="free blocks"),
    Facet("intact", title="arguments and results are as they were"),
)


def lab() -> Lab:
    """Return the lab."""
    return python_lab(
        Path(__file__).parent,
        "A scheduler for a paged KV cache",
        "grader.labs.scheduler.oracle:SchedulerOracle",
        FACETS,
        traces="grader.labs.scheduler.traces",
        circumstances="grader.labs.scheduler.oracle:circumstances",
        invariants=broken,
        charts=charts,
        smalls="grader.labs.scheduler.small:SMALL",
    )


def broken(state: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence for each broken invariant of the handout."""
    if not state["settings"]:
        return
    block_size, most_running, budget, threshold, policy = (state["settings"][place] for place in (1, 3, 4, 5, 6))
    running, waiting, scheduled = state["running"], state["waiting"], state["scheduled"]
    for name, (status, computed, _, _) in state["req"].items():
        yield from _of_a_request(state, name, status, computed)
        if name in running and status == "RUNNING" and name in state["tables"]:
            needed = -(-(computed + scheduled.get(name, 0)) // block_size)
            if len(state["tables"][name]) != needed:
                yield f"request {name} runs with {len(state['tables'][name])} blocks, its tokens need {needed}"
    if len(running) > most_running:
        yield f"{len(running)} requests run, at most {most_running} may"
    if sum(scheduled.values()) > budget:
        yield f"more tokens are scheduled than a step may have ({budget})"
    for name, tokens in scheduled.items():
        if tokens < 1:
            yield f"request {name} is scheduled with {tokens} tokens"
        if threshold and tokens > threshold:
            yield f"request {name} is scheduled with more tokens than the threshold ({threshold})"
    if policy == "priority" and all(name in state["given"] for name in waiting):
        keys = [(*state["given"][name][2:4], name) for name in waiting]
        if keys != sorted(keys):
            yield "waiting is not in the order of keys"


def _of_a_request(state: dict[str, Any], name: str, status: str, computed: int) -> Iterator[str]:
    running, waiting = state["running"], state["waiting"]
    places = running.count(name) + waiting.count(name)
    if status != "FINISHED" and places == 0:
        yield f"request {name} is lost: neither waiting nor running"
    if places > 1:
        yield f"request {name} is in two places"
    if name in waiting and name in state["tables"]:
        yield f"request {name} waits but keeps its blocks"
    if name in waiting and computed != 0:
        yield f"request {name} waits with {computed} computed tokens"


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
For vLLM the figure gives only the first share."""


def charts(trace: Trace, records: Sequence[Described], _: int) -> Iterator[Chart]:
    """Yield a chart of the steps, if there are any, and one of the simulations, if there are any."""
    places: dict[str, list[int]] = {}
    for place, operation in enumerate(trace.operations):
        places.setdefault(operation.name, []).append(place)
    if "schedule" in places:
        yield _schedule([place for place in places["schedule"] if place < len(records)], records)
    if "simulate" in places:
        policies = {place: str(trace.operations[place].arguments[0]) for place in places["simulate"]}
        totals = {place: _totals(records[place]) for place in policies if place < len(records)}
        yield Chart(
            title="Where the memory went, all steps together",
            legend=_PARTS,
            bars=tuple(
                Shares(label=f"{place + 1}: {policies[place]}", parts=parts)
                for place, parts in totals.items()
                if any(parts)
            ),
            known=tuple(
                Shares(label=label, parts=parts)
                for policy, (label, parts) in _PAPER.items()
                if policy in policies.values()
            ),
        )


def _schedule(places: Sequence[int], records: Sequence[Described]) -> Chart:
    """Draw requests as rows and steps as columns; below them the blocks in use."""
    steps = [records[place] for place in places]
    before = [records[max(0, place - 1)] for place in places]
    names = dict.fromkeys(name for record in steps for name in as_mapping(state_of(record, "req")))
    in_use = Level(
        label="blocks in use", values=tuple(map(_blocks_in_use, steps)), most=max(map(_usable, steps), default=0)
    )
    return Chart(
        title="Schedule",
        legend=_SIGNS,
        columns=tuple(str(number) for number, _ in enumerate(steps, 1)),
        operations=tuple(place + 1 for place in places),
        tracks=tuple(Track(label=name, cells=tuple(map(_cell, repeat(name), steps, before))) for name in names),
        levels=(in_use,) if steps else (),
    )


def _cell(name: str, record: Described, before: Described) -> str:
    """Return the cell for what a step did with a request."""
    returned = reply_of(record)
    plan: Sequence[Any] = returned if isinstance(returned, list) and len(returned) == 5 else ([],) * 5
    request = as_mapping(state_of(record, "req")).get(name)
    tokens = next((pair[1] for pair in _pairs(plan[0]) if pair[0] == name), None)
    if tokens is not None:
        return _computes(tokens, as_mapping(state_of(before, "req")).get(name), request)
    if name in as_list(plan[3]):
        return "x"
    if not isinstance(request, list) or len(request) != 4:
        return ""
    if name in as_list(state_of(record, "waiting")):
        return "·"
    return "=" if name in as_list(state_of(record, "running")) else ""


def _computes(tokens: object, before: object, after: object) -> str:
    """Return the sign of computed tokens: D for the newest token of a request with output, else P and their number."""
    if not isinstance(tokens, int):
        return "?"
    has_output = isinstance(after, list) and len(after) == 4 and isinstance(after[3], list) and len(after[3]) > 0
    computed = before[1] if isinstance(before, list) and len(before) == 4 else 0
    return "D" if has_output and tokens == 1 and computed else f"P{tokens}"


def _totals(record: Described) -> tuple[float, ...]:
    """Return the sums of the columns of a simulation's rows; zeros if a row is not readable."""
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
