"""What a request outputs depends on its tokens alone, never on how it was scheduled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

import pytest

from reference.operation import Argument, Operation
from reference.scheduler import Scheduler

_SEEDS = range(240)
_WAYS = 12
_MOST_STEPS = 600
_NOTHING = -1000003


@dataclass(frozen=True)
class Asked:
    """A request, and the step before which it comes."""

    name: str
    prompt: tuple[int, ...]
    max_tokens: int
    priority: int
    step: int


def alone(asked: Asked) -> list[int]:
    """What a model outputs that computes one request without any scheduler: the driver's sample, token by token."""
    tokens = list(asked.prompt)
    for _ in range(asked.max_tokens):
        tokens.append(sample(tokens))
    return tokens[len(asked.prompt) :]


def sample(tokens: list[int]) -> int:
    """The token that the handout's driver computes."""
    return (sum((place + 1) * token for place, token in enumerate(tokens)) + len(tokens)) % 3


def requests(random: Random) -> list[Asked]:
    """Some requests; most of them begin alike."""
    shared = tuple(random.randrange(3) for _ in range(8))
    return [
        Asked(
            name=name,
            prompt=(*shared[: random.randint(0, 8)], *(random.randrange(3) for _ in range(random.randint(1, 5)))),
            max_tokens=random.randint(1, 6),
            priority=random.randrange(3),
            step=random.randint(0, 4),
        )
        for name in "abcdefg"[: random.randint(2, 7)]
    ]


def ways(random: Random, asked: Iterable[Asked]) -> tuple[Argument, ...]:
    """The arguments of a scheduler, often with hardly room for the longest request."""
    size = random.randint(1, 4)
    least = max(-(-(len(each.prompt) + each.max_tokens) // size) for each in asked)
    return (
        1 + least + random.choice((0, 0, 1, 2, 3, 40)),
        size,
        random.random() < 0.5,
        random.randint(1, 6),
        random.choice((1, 2, 3, 5, 8, 13, 64)),
        random.choice((0, 0, 1, 2, 3)),
        random.choice(("fcfs", "priority")),
        random.random() < 0.5,
    )


class Model:
    """A model that has nothing but the memory: it computes the scheduled tokens into blocks, and reads them there.

    What it computes for a token depends on all tokens before it, as keys and values do.
    """

    def __init__(self) -> None:
        self.memory: dict[tuple[int, int], tuple[int, ...]] = {}
        self.outputs: dict[str, list[int]] = {}

    def run(self, engine: Scheduler) -> None:
        """One step: compute, then sample where everything is computed, from what the blocks hold."""
        for name, count in engine.scheduled.items():
            request = engine.requests[name]
            for place in range(request.computed, request.computed + count):
                self.memory[self._slot(engine, name, place)] = tuple(request.tokens[: place + 1])
        for name, count in engine.scheduled.items():
            request = engine.requests[name]
            if request.computed + count == len(request.tokens):
                self.outputs.setdefault(name, []).append(sample(self.read(engine, name)))

    def read(self, engine: Scheduler, name: str) -> list[int]:
        """The tokens of a request as its blocks hold them; `_NOTHING` where something else stands, or nothing."""
        tokens = engine.requests[name].tokens
        there = (self.memory.get(self._slot(engine, name, place)) for place in range(len(tokens)))
        return [prefix[-1] if prefix == tuple(tokens[: place + 1]) else _NOTHING for place, prefix in enumerate(there)]

    @staticmethod
    def _slot(engine: Scheduler, name: str, place: int) -> tuple[int, int]:
        block, offset = divmod(place, engine.kv.block_size)
        return engine.kv.tables[name][block], offset


def run(asked: list[Asked], settings: tuple[Argument, ...], met: Counter[str]) -> dict[str, list[int]]:
    """Schedule until all have finished; compare with what the model outputs, and count what was met on the way."""
    engine, model = Scheduler(), Model()

    def do(name: str, *arguments: Argument) -> None:
        assert not engine.apply(Operation(name=name, arguments=arguments)).refused

    do("scheduler", *settings)
    for step in range(_MOST_STEPS):
        for place, each in enumerate(asked):
            if each.step == step:
                do("add", each.name, each.prompt, each.max_tokens, each.priority, place)
        if not engine.waiting and not engine.running and step > max(each.step for each in asked):
            break
        do("schedule")
        met["hits"] += sum(call[0] == "alloc" and call[3] > 0 for call in engine.calls)
        model.run(engine)
        do("update")
    assert {request.status for request in engine.requests.values()} == {"FINISHED"}, settings
    _, _, caching, _, _, threshold, policy, gate = settings
    for request in engine.requests.values():
        circumstances = ("caching", caching), ("threshold", threshold), (policy, True), ("gate", gate)
        met.update({f"preemptions, {what}": request.preemptions for what, on in circumstances if on})
    outputs = {name: request.outputs for name, request in engine.requests.items()}
    if not (caching and policy == "priority"):  # there the last test shows what may be read
        assert model.outputs == outputs, settings
    return outputs


def compared(number: int) -> Counter[str]:
    """Compare on a part of the seeds; what was met."""
    met: Counter[str] = Counter()
    for seed in _SEEDS[number::6]:
        random = Random(seed)
        asked = requests(random)
        expected = {each.name: alone(each) for each in asked}
        for _ in range(_WAYS):
            settings = ways(random, asked)
            assert run(asked, settings, met) == expected, (seed, settings)
    return met


@pytest.mark.parametrize("number", range(6))
def test_outputs_do_not_depend_on_the_scheduling(number: int) -> None:
    """Whatever pool, block size, caching, number of requests, budget, threshold, policy and gate: all finish alike."""
    met = compared(number)

    assert len(met) == 6
    assert {what: count for what, count in met.items() if count < 50} == {}


def _update(engine: Scheduler) -> list[str]:
    """An update that believes each sample, of an incomplete prompt too."""
    finished = []
    for request in [name for name in engine.running if name in engine.scheduled]:
        known = engine.requests[request]
        known.computed += engine.scheduled[request]
        known.outputs.append(engine._sample(known))
        if len(known.outputs) == known.max_tokens:
            engine._leave(request)
            finished.append(request)
    engine.scheduled = {}
    return finished


def _forget(engine: Scheduler, victim: str) -> None:
    """A preemption after which the request stands nowhere."""
    engine.running.remove(victim)
    engine._free(victim)
    engine.scheduled.pop(victim, None)


@pytest.mark.parametrize(("name", "wrong"), [("update", _update), ("_preempt", _forget)])
def test_an_engine_with_a_mistake_outputs_something_else(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., object]
) -> None:
    """The comparison can fail."""
    monkeypatch.setattr(Scheduler, name, wrong)
    with pytest.raises(AssertionError):
        compared(0)


def test_under_priority_a_hit_may_hold_what_nobody_computed() -> None:
    """A block is found from the moment there is room, in vLLM too; but a victim that had got room is not computed.

    The driver's samples depend on tokens alone and never show it; those of a model that reads the memory would.
    """
    engine, model = Scheduler(), Model()
    steps: list[tuple[str, tuple[Argument, ...]]] = [("schedule", ()), ("update", ())]
    for name, arguments in (
        ("scheduler", (8, 1, True, 2, 8, 2, "priority", False)),
        ("add", ("z", (0, 1, 2, 0, 1, 2), 1, 1, 0)),
        *steps,
        ("add", ("a", (2,), 2, 0, 1)),
        *steps,
        *steps,  # z is given blocks for its last two tokens, then is the victim of a, which takes the last of them
        *steps[:1],
    ):
        engine.apply(Operation(name=name, arguments=arguments))
        if name == "schedule":
            model.run(engine)

    assert engine.calls == [["alloc", "z", 1, 5]]
    assert model.read(engine, "z") == [0, 1, 2, 0, _NOTHING, 2]
