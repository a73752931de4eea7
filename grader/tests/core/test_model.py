"""A trace is played one operation after the other."""

from __future__ import annotations

from grader.core.model import play
from grader.labs.paged_kv.judging.model import PagedKVModel
from reference.operation import Operation, Trace

CREATE = Operation(name="create_sequence", arguments=(1, 5))


def test_play_yields_a_step_for_each_operation() -> None:
    """A step is an operation, its reply and the record after it."""
    trace = Trace(operations=(Operation(name="llm_init", arguments=(64,)), CREATE))
    alone = PagedKVModel(trace)

    expected = [(operation, alone.apply(operation), alone.record()) for operation in trace.operations]

    assert [(step.operation, step.reply, step.record) for step in play(PagedKVModel(trace), trace)] == expected


def test_play_yields_nothing_for_an_empty_trace() -> None:
    """A trace without operations has no steps, and its model has room for one engine."""
    trace = Trace(operations=())

    assert list(play(PagedKVModel(trace), trace)) == []
    assert len(PagedKVModel(trace).record()) == 16
