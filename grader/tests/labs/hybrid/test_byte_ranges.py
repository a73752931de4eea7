"""Part 2 of the engine against a memory of bytes: replies and states agree after each operation.

`scripts/test --all` goes on to 3,000 traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from random import Random
from typing import Any

import pytest

from grader.labs.hybrid.traces import _fit, generate
from grader.tests.labs.hybrid.byte_ranges import ByteMemory
from reference.hybrid import Hybrid
from reference.hybrid.lcm_allocator import LcmAllocator
from reference.operation import Operation
from reference.oracle import Oracle
from reference.tests.hybrid.mistaken import engine_module
from reference.tests.hybrid.test_worked_examples import _FUNCTIONS, _PAGES, _WINDOW, operation

_LENGTH = 60
_TRACES, _MANY_TRACES = 150, 3000
_FITS = 1000


def traces() -> Iterator[tuple[int, list[Operation]]]:
    """The traces of `generate` that are of an allocator, each with its seed, without end."""
    for seed in count():
        if any(call.name == "lcm" for call in generate(Random(seed), 2)):
            yield seed, [call for call in generate(Random(seed), _LENGTH) if call.name != "spoil"]


def differences(
    some: Iterator[tuple[int, list[Operation]]], make: Callable[[], Oracle] = LcmAllocator
) -> Iterator[str]:
    """The first difference in each trace that has one."""
    for seed, trace in some:
        engine, memory = make(), ByteMemory()
        for call in trace:
            mine = {"reply": engine.apply(call).text, **engine.state()}
            theirs = {"reply": memory.apply(call.name, call.arguments), **memory.state()}
            different = [
                f"{key}: bytes {theirs[key]}, the engine {mine[key]}" for key in theirs if mine[key] != theirs[key]
            ]
            if different:
                yield "; ".join([f"seed {seed}, {call}", *different])
                break


@pytest.mark.parametrize("number", [_TRACES, pytest.param(_MANY_TRACES, marks=pytest.mark.thorough)])
def test_the_engine_does_what_bytes_do(number: int) -> None:
    """After every operation: the reply, free large pages, owners, slots, geometry.

    The published allocators of Jenga, from which the five steps come, are not compared with: where several slots would
    do they take any, and one of their defects gives out a slot twice.
    """
    assert list(differences(islice(traces(), number))) == []


def test_the_traces_meet_what_matters() -> None:
    """Each step of `alloc`, each refusal, pages that return and change their type."""
    met: dict[str, int] = {}
    for _, trace in islice(traces(), _TRACES):
        engine = Hybrid()
        for call in trace:
            slots, free, owner = engine.state()["slots"], len(engine.free_large_pages), dict(engine.owner)
            reply = engine.apply(call)
            words = [call.name, reply.clause, reply.text if reply.refused else "accepted"]
            if call.name == "alloc" and not reply.refused:
                before = owner.get(int(reply.text) // engine.ratio[str(call.arguments[1])])
                words.append(f"{reply.clause} {'without owner' if before is None else 'with owner'}")
            if reply.clause == "Part 2/wrong-state":
                page_type, small_id, *_ = call.arguments
                words.append(f"wrong-state {type(slots[page_type].get(str(small_id))).__name__}")
            if len(engine.free_large_pages) > free:
                words.append(f"{call.name} of the last slot")
            for word in words:
                met[word] = met.get(word, 0) + 1

    wanted = {"alloc", "free_page", "release", "reuse", "remove", "offset", "lcm", "null", "ValueError"}
    wanted |= {"free_page of the last slot", "Part 2/unknown-type", "Part 2/byte_offset"}
    wanted |= {f"wrong-state {kind}" for kind in ("NoneType", "str", "list")}
    wanted |= {"Part 2/step-4 without owner", "Part 2/step-4 with owner"}
    wanted |= {f"Part 2/step-{number}" for number in range(1, 6)}
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


def test_bytes_do_what_the_handout_shows() -> None:
    """Its two examples of large pages, and its figures of `fit`."""
    for text in (_PAGES, _WINDOW, _FUNCTIONS):
        memory = ByteMemory()
        for line in text.strip().splitlines():
            call, reply = operation(line.partition("#")[0].strip())
            if call.name not in ("waste", "unify"):
                assert memory.apply(call.name, call.arguments) == reply, line


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


_WRONG: dict[str, tuple[str, str]] = {
    "the highest slot": ("return min((small_id for", "return max((small_id for"),
    "slots of any request": ("if owner == request)", ")"),
    "free pages from the tail": ("free_large_pages.pop(0)", "free_large_pages.pop()"),
    "a page comes back at the head": ("free_large_pages.append(page)", "free_large_pages.insert(0, page)"),
    "nobody becomes the owner": ("self.owner[page] = request\n        return", "pass\n        return"),
    "the new owner is any request": ("if self.owner[page] is None:", "if True:"),
    "a used slot is evicted": ("if keys and USED not in slots:", "if keys:"),
    "a page with an empty slot stays": ("USED not in slots:", "USED not in slots and EMPTY not in slots:"),
    "a page is as old as its oldest slot": ("(max(keys), page)", "(min(keys), page)"),
    "the youngest page goes": ("_, page = min(evictable)", "_, page = max(evictable)"),
    "pages without owner are not preferred": ("items() if owner is None))", "items() if owner == request))"),
    "the youngest slot goes": ("_, small_id = min(cached)", "_, small_id = max(cached)"),
    "a shorter prefix goes first": ("last_access, -prefix_length", "last_access, prefix_length"),
    "an empty page stays in use": ("            self._close(page)\n            self.free", "            self.free"),
    "any empty slot returns the page": ("if all(slot == EMPTY", "if any(slot == EMPTY"),
    "owners stay": ("None if owner == request else owner", "owner"),
    "all pages lose their owner": ("None if owner == request else owner", "None"),
    "reuse of a used slot": ("or (slot == USED) is not used:", "or (used and slot != USED):"),
    "the budget is rounded up": ("budget // self.large_page_bytes", "-(-budget // self.large_page_bytes)"),
    "the largest page is the large one": ("lcm(*self.page_bytes.values())", "max(self.page_bytes.values())"),
    "an offset in large pages": ("small_id * self.page_bytes[page_type]", "small_id * self.large_page_bytes"),
    "an offset behind the end": ("<= small_id < self", "<= small_id <= self"),
}


@pytest.mark.parametrize("wrong", _WRONG)
def test_an_engine_with_a_mistake_differs(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """A line that reads otherwise is seen in some trace."""
    allocator = engine_module(monkeypatch, "lcm_allocator", ("lcm_allocator", *_WRONG[wrong]))

    assert _differs(allocator.LcmAllocator)


def test_an_engine_that_is_only_executed_anew_does_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes the others differ is their mistake."""
    allocator = engine_module(monkeypatch, "lcm_allocator", ("lcm_allocator", "min(cached)", "min(cached)"))

    assert not _differs(allocator.LcmAllocator)


def _differs(make: Callable[[], Oracle]) -> bool:
    """Whether an engine has a difference, or loses a page so that it cannot go on."""
    try:
        return any(differences(islice(traces(), _TRACES), make))
    except (KeyError, ValueError):
        return True
