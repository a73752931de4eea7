"""Which wait brings a kernel behind a load."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grader.labs.offload.device.overlap import Serial, edge_of
from grader.labs.offload.device.races import Clocks, Work
from grader.tests.labs.offload.programs import CONFIG, calls_of, given


def _by_sync(dev: Any, compute: Any, load: Any) -> None:
    dev.sync(compute)
    dev.sync(load)
    dev.sync()


def _by_event(dev: Any, compute: Any, load: Any) -> None:
    early, late = dev.event(), dev.event()
    dev.wait(compute, early)
    dev.record(late, load)
    dev.wait(compute, late)


@pytest.mark.parametrize(("waits", "name", "number"), [(_by_sync, "sync", 1), (_by_event, "wait", 1)])
def test_the_first_wait_that_orders_the_two_is_named(
    waits: Callable[[Any, Any, Any], None], name: str, number: int
) -> None:
    """One before it, for something else, is not blamed."""
    dev = given().Device(given().Config(2, 3, 2, 2, 6))
    compute, load = dev.stream(), dev.stream()
    ring, host = dev.alloc(4, CONFIG.kv_width, compute), dev.alloc_pinned(4, CONFIG.kv_width)
    dev.copy(ring, host, load)
    waits(dev, compute, load)
    dev.launch("rotary", compute, x=ring, pos=0)
    _, calls = calls_of(dev._log)
    clocks = Clocks()
    works = {call.name: work for call in calls if isinstance(work := clocks.take(call), Work)}
    edge = edge_of(Serial(works["copy"], works["rotary"], 1, 0), calls)

    assert edge is [call for call in calls if call.name == name][number]


def test_work_of_one_stream_needs_no_wait() -> None:
    """Its place in the stream orders it."""
    dev = given().Device(given().Config(2, 3, 2, 2, 6))
    stream = dev.stream()
    ring, host = dev.alloc(4, CONFIG.kv_width, stream), dev.alloc_pinned(4, CONFIG.kv_width)
    dev.copy(ring, host, stream)
    dev.sync()
    dev.launch("rotary", stream, x=ring, pos=0)
    _, calls = calls_of(dev._log)
    clocks = Clocks()
    works = {call.name: work for call in calls if (work := clocks.take(call)) is not None}

    assert edge_of(Serial(works["copy"], works["rotary"], 1, 0), calls) is None
