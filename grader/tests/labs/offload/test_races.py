"""The checker against brute force: it reports a race exactly when two orders of the work differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from grader.labs.offload.dense import model_of
from grader.labs.offload.device import LoggedCall, RowSpan
from grader.labs.offload.races import Clocks, Races, Serial, StreamWork, edge_of
from grader.labs.offload.schedules import SCHEDULES, Memory
from grader.tests.labs.offload.programs import CONFIG, calls_of, given

_PROGRAMS = 1500
_MOST_WORK = 7


def _program(random: Random) -> list[Any]:
    """Two or three streams, two events, a buffer or two; copies, waits, records, host waits and frees."""
    module = given()
    dev = module.Device(module.Config(2, 3, 2, 2, 6))
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


def _edges(calls: Sequence[LoggedCall]) -> tuple[list[LoggedCall], set[tuple[int, int]]]:
    """The work of a program, and which comes directly before which, read from Part 0 without clocks."""
    work: list[LoggedCall] = []
    before: set[tuple[int, int]] = set()
    tails: dict[int, int] = {}
    events: dict[int, list[int]] = {}
    waited: set[int] = set()
    loose: set[int] = set()
    for call in calls:
        if call.name == "record":
            events[call.event] = [tails[call.stream]] if call.stream in tails else []
        elif call.name == "sync":
            if call.stream >= 0:
                waited |= {tails[call.stream]} if call.stream in tails else set()
            else:
                waited |= set(events.get(call.event, [])) if call.event >= 0 else set(range(len(work))) - loose
        elif call.is_work:
            number = len(work)
            work.append(call)
            before |= {(other, number) for other in waited}
            of = (call.stream, *call.others)
            before |= {(tails[stream], number) for stream in of if stream in tails}
            if call.name == "wait":
                before |= {(other, number) for other in events.get(call.event, [])}
            if call.others:
                loose.add(number)
            else:
                tails[call.stream] = number
    return work, before


def _orders(count: int, before: set[tuple[int, int]]) -> Iterator[list[int]]:
    """Yield every order of the work that a device may choose."""
    needs = {number: {first for first, second in before if second == number} for number in range(count)}

    def go(done: list[int]) -> Iterator[list[int]]:
        if len(done) == count:
            yield done
        for number in range(count):
            if number not in done and needs[number] <= set(done):
                yield from go([*done, number])

    yield from go([])


def _conflict(one: LoggedCall, other: LoggedCall) -> bool:
    def meet(spans: Sequence[RowSpan], others: Sequence[RowSpan]) -> bool:
        return any(a.buffer == b.buffer and a.lo < b.hi and b.lo < a.hi for a in spans for b in others)

    return meet(one.writes, (*other.reads, *other.writes)) or meet(one.reads, other.writes)


def _differ(calls: Sequence[LoggedCall]) -> bool:
    """Whether two orders of the work differ in the order of two conflicting accesses."""
    work, before = _edges(calls)
    pairs = [(a, b) for b in range(len(work)) for a in range(b) if _conflict(work[a], work[b])]
    seen: set[tuple[int, int]] = set()
    for order in _orders(len(work), before):
        place = {number: at for at, number in enumerate(order)}
        seen |= {(a, b) if place[a] < place[b] else (b, a) for a, b in pairs}
    return any((b, a) in seen and (a, b) in seen for a, b in pairs)


def test_a_race_is_what_two_orders_decide_differently() -> None:
    """For random small programs, checked against all orders that a device may choose."""
    racing = 0
    for seed in range(_PROGRAMS):
        _, calls = calls_of(_program(Random(seed)))
        races = Races()
        seen = [race for call in calls for race in races.take(call)[1]]

        assert bool(seen) == _differ(calls), f"seed {seed}"

        racing += bool(seen)
    assert _PROGRAMS // 5 < racing < _PROGRAMS * 4 // 5


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
        schedule.finish()
        contents.append(memory.contents)

    for one, other in pairwise(contents):
        assert all(np.array_equal(one[number], other[number], equal_nan=True) for number in one)


def test_record_stream_keeps_a_buffer_until_the_copy_is_done() -> None:
    """Freed behind a copy on another stream: a race, unless record_stream names that stream."""
    module = given()
    for named, wanted in ((None, 1), (1, 0), (0, 1)):
        dev = module.Device(module.Config(2, 3, 2, 2, 6))
        streams, event = [dev.stream(), dev.stream()], dev.event()
        buf, host = dev.alloc(4, 1, streams[0]), dev.alloc_pinned(4, 1)
        dev.record(event, streams[0])
        dev.wait(streams[1], event)
        dev.copy(host, buf, streams[1])
        if named is not None:
            dev.record_stream(buf, streams[named])
        dev.free(buf)
        _, calls = calls_of(dev._log)
        races = Races()

        assert wanted == sum(len(races.take(call)[1]) for call in calls)


def test_the_host_reads_what_it_waited_for() -> None:
    """A copy to pinned memory is read by the host: without a wait for it that is a race."""
    module = given()
    for waits in (False, True):
        dev = module.Device(module.Config(2, 3, 2, 2, 6))
        stream, host = dev.stream(), dev.alloc_pinned(1, 1)
        dev.copy(host, dev.alloc(1, 1, stream), stream)
        if waits:
            dev.sync(stream)
        _, calls = calls_of(dev._log)
        races = Races()
        for call in calls:
            races.take(call)

        assert bool([*races.host_reads(RowSpan(0, 0, 1))]) is not waits


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
    works = {call.name: work for call in calls if isinstance(work := clocks.take(call), StreamWork)}
    edge = edge_of(Serial(works["copy"], works["rotary"], 0), calls)

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

    assert edge_of(Serial(works["copy"], works["rotary"], 0), calls) is None
