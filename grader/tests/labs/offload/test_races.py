"""The checker against brute force: it reports a race exactly when two orders of the work differ."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from grader.labs.offload.dense import SCHEDULES, Memory, model_of
from grader.labs.offload.device import Clocks, LoggedCall, Races, Serial, edge_of
from grader.labs.offload.given import offload_device
from grader.tests.labs.offload.programs import CONFIG, calls_of

_MOST_WORK = 7


def _program(random: Random) -> list[Any]:
    """Two or three streams, two events, a buffer or two; copies, waits, records, host waits and frees."""
    dev = offload_device.Device(offload_device.Config(2, 3, 2, 2, 6))
    streams = [dev.stream(f"s{number}") for number in range(random.randint(2, 3))]
    events = [dev.event() for _ in range(2)]
    host = dev.alloc_pinned(4, 1)
    buffers = [dev.alloc(4, 1, random.choice(streams)) for _ in range(random.randint(1, 2))]
    work = len(buffers)
    while work < _MOST_WORK:
        stream, buf = random.choice(streams), random.choice([*buffers, None])
        drawn = random.random()
        if drawn < 0.45 and buf is not None:
            lo = random.randrange(3)
            rows = (buf, lo, lo + random.randint(1, 2)), (host, 0, 4)
            lo = random.randrange(3)
            there = (host, lo, lo + rows[0][2] - rows[0][1])
            dev.copy(*random.choice([(rows[0], there), (there, rows[0])]), stream)
            work += 1
        elif drawn < 0.6:
            dev.record(random.choice(events), stream)
        elif drawn < 0.75:
            dev.wait(stream, random.choice(events))
            work += 1
        elif drawn < 0.82:
            dev.sync(random.choice([stream, random.choice(events), None]))
        elif drawn < 0.92 and buf is not None:
            dev.record_stream(buf, stream)
        elif buf is not None:
            dev.free(buf)
            buffers.remove(buf)
            work += 1
    log: list[Any] = dev._log
    return log


@pytest.mark.parametrize("seed", range(40))
def test_without_a_race_every_schedule_computes_the_same(seed: int) -> None:
    """That is why only a program with a race is replayed under more than one."""
    random = Random(seed)
    for _ in range(1000):
        _, calls = calls_of(_program(random))
        races = Races()
        if not any(races.take(call)[1] for call in calls):
            break
    else:
        pytest.fail("no program without a race was drawn")
    contents = []
    for make in SCHEDULES.values():
        memory = Memory(model_of(CONFIG))
        schedule = make(memory)
        for call in calls:
            if call.name in ("alloc", "alloc_pinned"):
                memory.create(call.buffer, 4, 1)
                if call.name == "alloc_pinned":
                    memory.contents[call.buffer][:] = np.arange(4.0)[:, None]
            schedule.take(call)
        schedule.take(LoggedCall(name="sync", line=0))
        contents.append(memory.contents)

    for one, other in pairwise(contents):
        assert all(np.array_equal(one[number], other[number], equal_nan=True) for number in one)


def test_work_of_one_stream_needs_no_wait() -> None:
    """Its place in the stream orders it."""
    dev = offload_device.Device(offload_device.Config(2, 3, 2, 2, 6))
    stream = dev.stream()
    ring, host = dev.alloc(4, CONFIG.kv_width, stream), dev.alloc_pinned(4, CONFIG.kv_width)
    dev.copy(ring, host, stream)
    dev.sync()
    dev.launch("rotary", stream, x=ring, pos=0)
    _, calls = calls_of(dev._log)
    clocks = Clocks()
    works = {call.name: work for call in calls if (work := clocks.take(call)) is not None}

    assert edge_of(Serial(works["copy"], works["rotary"], 0), calls) is None
