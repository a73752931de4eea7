"""Six classic mistakes of order, each found by the order of calls alone: no kernel computes a number here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

from grader.labs.offload.dense import SCHEDULES, Array, Memory, model_of
from grader.labs.offload.device import LoggedCall, Race, RowSpan
from grader.labs.offload.replay import Replay, numbers_of
from grader.labs.offload.sentences import described, facet_of_race
from grader.tests.labs.offload.programs import CONFIG
from grader.tests.labs.offload.sent import SAMPLES, Sent, cases, graded, replay_of

_CASES = ("runner/ring_of_two", "runner/flush_and_store")

_COPY, _FLUSH = r"copy to block \d of layer \d in [kv]_cache_cpu", r"flush to block \d of layer \d in [kv]_cache_cpu"
_LOAD, _ATTENTION = r"load of layer \d into buffer \d", "attention"
_JOIN = r"copy from layer_[kv]_cache"
_STORE, _FREED = r"copy to decode_[kv]_buffer", r"free of the buffer of line \d+"
_TO_K, _TO_V = (_COPY.replace("[kv]", name) for name in "kv")

Pair = tuple[str, str, str]
"""The facet of a race, and patterns for its two calls, in the order of the log."""

_PAIRS: dict[str, tuple[Pair, ...]] = {
    "frees_at_once": (("race_free", _COPY, _FREED),),
    "copies_before_it_computes": (
        ("race_workspace", "rotary", _TO_K),
        ("race_workspace", r"v_proj of layer \d", _TO_V),
    ),
    "loads_before_marking_done": (("race_reload", _ATTENTION, _LOAD),),
    "loads_wait_for_no_reader": (("race_reload", _JOIN, _LOAD),),
    "attention_before_the_load": (("race_ring", _LOAD, _ATTENTION),),
    "flush_not_waited_for": (("race_decode", _FLUSH, _STORE), ("race_cache", _FLUSH, _LOAD)),
}
"""For the sample of each mistake, all pairs that race."""


@dataclass(slots=True)
class _NoValues(Memory):
    """Memory without contents: it notes which calls ran, in order."""

    ran: list[LoggedCall] = field(default_factory=list)

    def create(self, number: int, rows: int, width: int) -> None:
        """Allocate nothing."""

    def rows(self, span: RowSpan) -> Array:  # noqa: ARG002 - as its base class has it
        """No rows."""
        return np.empty((0, 1))

    def run(self, call: LoggedCall) -> Array | None:
        """Compute nothing."""
        self.ran.append(call)
        return None


@cache
def _sent(verdict: str, name: str) -> tuple[Sent, ...]:
    _, sent = graded(SAMPLES / verdict / name, [case for case in cases() if case.name in _CASES])

    assert len(sent) == len(_CASES)

    return tuple(sent)


def _races(sent: Sent, schedule_name: str) -> Iterator[tuple[Replay, Race, bool]]:
    """Yield the races of a case, each with whether this schedule ran its second call before its first."""
    operations, records = sent
    replay, memory = replay_of(operations[0]), _NoValues(model_of(CONFIG))
    replay.memory = _NoValues(model_of(CONFIG))
    schedule = SCHEDULES[schedule_name](memory)
    races: list[Race] = []
    for operation, record in zip(operations, records, strict=True):
        before = len(replay.calls)
        races += replay.take(record["state"]["log"]).races
        if operation.name == "runner":
            replay.storage = numbers_of(record["state"]["handles"], replay.device)
        span = RowSpan(replay.storage["logits"], 0, 1)
        races += replay.races.host_reads(span)
        for call in replay.calls[before:]:
            schedule.take(call)
    schedule.take(LoggedCall(name="sync", line=0))
    places = {id(call): place for place, call in enumerate(memory.ran)}
    for race in races:
        assert race.second is not None
        yield replay, race, places[id(race.second.work.call)] < places[id(race.first.work.call)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", _PAIRS)
def test_a_mistake_of_order_is_found_without_numbers(name: str, schedule: str) -> None:
    """At the pairs of accesses that the mistake leaves without an order, and at no others."""
    seen: set[Pair] = set()
    for sent in _sent("wrong_answer", name):
        for replay, race, _ in _races(sent, schedule):
            assert race.second is not None
            facet = facet_of_race(race, replay)
            first, second = (described(one.work.call, replay) for one in (race.first, race.second))
            fitting = [
                pair
                for pair in _PAIRS[name]
                if pair[0] == facet and re.fullmatch(pair[1], first) and re.fullmatch(pair[2], second)
            ]

            assert len(fitting) == 1, f"{facet}: {first}, then {second}"

            seen.update(fitting)

    assert set(_PAIRS[name]) == seen


@pytest.mark.parametrize("name", _PAIRS)
def test_eager_hides_what_another_schedule_shows(name: str) -> None:
    """A naive port runs each pair in the order of its calls; some other schedule runs one the other way round."""
    turned = {
        schedule: any(was_turned for sent in _sent("wrong_answer", name) for *_, was_turned in _races(sent, schedule))
        for schedule in SCHEDULES
    }

    assert not turned["eager"]
    assert turned["late"] or turned["early"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", sorted(path.name for path in (SAMPLES / "accepted").iterdir()))
def test_an_accepted_program_has_no_race(name: str, schedule: str) -> None:
    """In the same cases."""
    assert [race for sent in _sent("accepted", name) for race in _races(sent, schedule)] == []
