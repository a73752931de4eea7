"""What can never be so in the state of a scheduler: a right run never shows it, and each of it has its sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grader.core.model import play
from grader.labs import open_lab
from grader.labs.scheduler.lab import broken
from grader.labs.scheduler.oracle import SchedulerOracle
from grader.tests.support.charted import cases, reported, text_of
from reference.operation import Argument, Operation


def state() -> dict[str, Any]:
    """`a` runs, `b` waits, `c` has finished; a step is open."""
    engine = SchedulerOracle()
    operations: list[tuple[str, tuple[Argument, ...]]] = [
        ("scheduler", (9, 2, True, 1, 6, 4, "fcfs", False)),
        ("add", ("c", (2,), 1, 0, 0)),
        ("schedule", ()),
        ("update", ()),
        ("add", ("a", (1, 1, 1), 2, 0, 1)),
        ("add", ("b", (1,), 2, 0, 2)),
        ("schedule", ()),
    ]
    for name, arguments in operations:
        assert not engine.apply(Operation(name=name, arguments=arguments)).refused
    return engine.state()


_BROKEN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nowhere": ({"waiting": []}, ["request b is lost: neither waiting nor running"]),
    "running is lost": ({"running": []}, ["request a is lost: neither waiting nor running"]),
    "twice in a queue": ({"waiting": ["b", "b"]}, ["request b is in two places"]),
    "in both queues": (
        {"waiting": ["a", "b"]},
        ["request a is in two places", "request a waits but keeps its blocks"],
    ),
    "waits with blocks": ({"tables": {"a": [2, 3], "b": [4]}}, ["request b waits but keeps its blocks"]),
    "waits with computed tokens": (
        {"req": {"a": ["RUNNING", 0, 0, []], "b": ["PREEMPTED", 1, 1, []], "c": ["FINISHED", 1, 0, [0]]}},
        ["request b waits with 1 computed tokens"],
    ),
    "too many run": ({"running": ["a", "b"], "waiting": []}, ["2 requests run, at most 1 may"]),
    "too few blocks": ({"tables": {"a": [2]}}, ["request a runs with 1 blocks, its tokens need 2"]),
    "no token": ({"scheduled": {"a": 3, "b": 0}}, ["request b is scheduled with 0 tokens"]),
    "above the threshold": (
        {"scheduled": {"b": 5}, "tables": {}},
        ["request b is scheduled with more tokens than the threshold (4)"],
    ),
    "out of order": (
        {
            "settings": [9, 2, True, 1, 6, 4, "priority", False],
            "waiting": ["b", "c"],
            "given": {"a": [[1], 2, 0, 1], "b": [[1], 2, 1, 2], "c": [[2], 1, 0, 0]},
            "req": {"a": ["RUNNING", 0, 0, []], "b": ["WAITING", 0, 0, []], "c": ["WAITING", 0, 0, []]},
        },
        ["waiting is not in the order of keys"],
    ),
    "too many tokens": ({"scheduled": {"a": 3, "b": 4}}, ["more tokens are scheduled than a step may have (6)"]),
}


@pytest.mark.parametrize("name", _BROKEN)
def test_each_has_its_sentence(name: str) -> None:
    """A state that differs from a right one in one part."""
    changed, sentences = _BROKEN[name]

    assert list(broken({**state(), **changed})) == sentences


def test_the_first_wrong_cell_is_the_leftmost() -> None:
    """Of two that differ; the chart is shown with the columns of both sides."""
    lab = open_lab("scheduler")
    case = next(case for case in cases("scheduler") if case.name == "admission/nobody_overtakes")
    records = [json.loads(step.record) for step in play(lab.model(case.trace), case.trace)]
    places = [place for place, operation in enumerate(case.trace.operations) if operation.name == "schedule"]
    for place in places[1:]:
        records[place]["reply"] = {"returned": [[["c", 1]], ["c"], [], ["a"], 1]}
    shown = reported(lab, case, [json.dumps(record).encode() for record in records])

    (schedule,) = shown
    assert schedule.wrong is not None
    yours, expected = (side.tracks[schedule.wrong.track] for side in (schedule.actual, schedule.expected))
    assert (schedule.wrong.column, yours.label) == (1, "a")
    assert (yours.cells[1], expected.cells[1]) == ("x", "D")
    assert ">x<" in text_of(shown)
