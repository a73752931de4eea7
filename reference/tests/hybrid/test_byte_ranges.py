"""Part 2 of the engine against a memory of bytes: replies and states agree after each operation.

`python -m grader.tests.trials.hybrid_bytes` goes on to 3,000 traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from random import Random
from typing import Any

import pytest

from reference.hybrid import Hybrid, generate
from reference.hybrid.generate import _fit
from reference.hybrid.lcm_allocator import LcmAllocator
from reference.operation import Operation
from reference.tests.hybrid.byte_ranges import ByteMemory

__all__ = ["differences", "traces"]

_LENGTH = 60
_TRACES = 150
_FITS = 1000


def traces() -> Iterator[tuple[int, list[Operation]]]:
    """The traces of `generate` that are of an allocator, each with its seed, without end."""
    for seed in count():
        if any(operation.name == "lcm" for operation in generate(Random(seed), 2)):
            yield seed, [operation for operation in generate(Random(seed), _LENGTH) if operation.name != "spoil"]


def differences(some: Iterator[tuple[int, list[Operation]]]) -> Iterator[str]:
    """The first difference in each trace that has one."""
    for seed, trace in some:
        engine, memory = Hybrid(), ByteMemory()
        for operation in trace:
            mine = {"reply": engine.apply(operation).text, **LcmAllocator.state(engine)}
            theirs = {"reply": memory.apply(operation.name, operation.arguments), **memory.state()}
            different = [
                f"{key}: bytes {theirs[key]}, the engine {mine[key]}" for key in theirs if mine[key] != theirs[key]
            ]
            if different:
                yield "; ".join([f"seed {seed}, {operation}", *different])
                break


def test_the_engine_does_what_bytes_do() -> None:
    """After every operation: the reply, free large pages, owners, slots, geometry."""
    assert list(differences(islice(traces(), _TRACES))) == []


def test_the_traces_meet_what_matters() -> None:
    """Each step of `alloc`, each refusal, pages that return and change their type."""
    met: dict[str, int] = {}
    for _, trace in islice(traces(), _TRACES):
        engine = Hybrid()
        for operation in trace:
            reply = engine.apply(operation)
            for word in (operation.name, *reply.circumstances, *([reply.text] if reply.refused else ())):
                met[word] = met.get(word, 0) + 1

    wanted = {"alloc", "free_page", "release", "reuse", "remove", "offset", "lcm", "null", "ValueError", "last-slot"}
    wanted |= {"adopted", "without-owner", "of-another", "no-such-slot", "unknown-type", "outside", "evictable", "used"}
    wanted |= {f"step-{number}" for number in range(1, 6)}
    assert {word: met.get(word, 0) for word in wanted if met.get(word, 0) < 5} == {}


def test_fit_lays_pages_into_bytes() -> None:
    """The four policies, and another one."""
    policies: dict[Any, int] = {}
    for seed in range(_FITS):
        name, arguments = _fit(Random(seed))
        policies[arguments[0]] = policies.get(arguments[0], 0) + 1
        engine = Hybrid().apply(Operation(name=name, arguments=arguments)).text
        assert engine == ByteMemory().apply(name, arguments), (seed, arguments)
    assert len(policies) == 5
    assert min(policies.values()) > 20


def test_bad_sizes_are_no_memory() -> None:
    """And change nothing."""
    engine, memory = Hybrid(), ByteMemory()
    good: tuple[Any, ...] = ((("x", 2), ("y", 3)), 13)
    memory.apply("lcm", good)
    engine.apply(Operation(name="lcm", arguments=good))
    for arguments in (((), 5), ((("x", 0),), 5), ((("x", 1),), -1), ((("x", 1),), 0), good):
        before = memory.state()
        reply = memory.apply("lcm", arguments)
        assert engine.apply(Operation(name="lcm", arguments=arguments)).text == reply
        assert memory.state() == {key: LcmAllocator.state(engine)[key] for key in before}
        assert reply == "null" or memory.state() == before


def _last(engine: LcmAllocator, page_type: str, pages: Any) -> int | None:
    allowed = set(pages)
    empty = [i for i, slot in engine.slots[page_type].items() if slot == "empty"]
    return max((i for i in empty if i // engine.ratio[page_type] in allowed), default=None)


def _without_adoption(engine: LcmAllocator, _request: str, page_type: str, small_id: int) -> int:
    engine.slots[page_type][small_id] = "used"
    return small_id


def _oldest(engine: LcmAllocator) -> list[tuple[Any, int]]:
    """The key of a large page is its oldest slot."""
    keys: dict[int, list[Any]] = {page: [] for page in engine.owner}
    for page_type, slots in engine.slots.items():
        for small_id, slot in slots.items():
            keys[small_id // engine.ratio[page_type]].append(slot)
    return [
        (min((slot[0], -slot[1]) for slot in slots if slot != "empty"), page)
        for page, slots in keys.items()
        if "used" not in slots and set(slots) != {"empty"}
    ]


_WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "the highest slot": ("_lowest_empty", _last),
    "nobody becomes the owner": ("_use", _without_adoption),
    "no large page is evicted": ("_evictable_large_pages", lambda _: []),
    "a large page is as old as its oldest slot": ("_evictable_large_pages", _oldest),
    "owners stay": ("remove", lambda *_: None),
    "nothing comes back": ("_close", lambda *_: None),
    "a shorter prefix goes first": ("_key", lambda slot: slot),
    "the youngest goes first": ("_key", lambda slot: (-slot[0], -slot[1])),
}


@pytest.mark.parametrize("wrong", _WRONG)
def test_an_engine_with_a_mistake_differs(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The comparison can fail."""
    name, function = _WRONG[wrong]
    where = "reference.hybrid.lcm_allocator" if name == "_key" else "reference.hybrid.lcm_allocator.LcmAllocator"
    monkeypatch.setattr(f"{where}.{name}", function)

    assert any(differences(islice(traces(), _TRACES)))
