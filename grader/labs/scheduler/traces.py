"""Random traces: small pools, requests that begin alike, ids that come again, crowded memories.

What the handout leaves open occurs in none of them. Searches (`explore`) also have traces of the functions of Task 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from reference.operation import Argument, Operation
from reference.scheduler.scheduler import Scheduler

_NAMES = "abcdefgh"
_Call = tuple[str, tuple[Argument, ...]]
_POLICIES = ("max", "pow2", "oracle", "paged")


def generate(random: Random, length: int) -> list[Operation]:
    """Return a trace: schedulers (a third of them made for tokens that come back to the budget), and simulations."""
    engine, operations = Scheduler(), list[Operation]()
    maker = _Steps(random, refunds=random.random() < 1 / 3)
    crowded = random.randrange(1, length)
    while len(operations) < length:
        name, arguments = _simulation(random, crowded=True) if len(operations) == crowded else maker.next(engine)
        operation = Operation(name=name, arguments=arguments)
        engine.apply(operation)
        operations.append(operation)
    return operations


def _simulation(random: Random, *, crowded: bool) -> _Call:
    slots, most = (random.randint(60, 120), random.randint(6, 12)) if crowded else (random.randint(8, 44), 0)
    most = most or random.randint(4, 14)
    requests = random.randint(30, 40) if crowded else random.randint(0, 12)
    lengths = []
    for _ in range(requests):
        prompt = random.randint(1, most - 1)
        lengths.append((prompt, random.randint(1, most - prompt)))
    policy = random.choice(_POLICIES)
    return "simulate", (policy, slots, most, random.randint(1, 4), tuple(lengths))


def _refunds(random: Random) -> Iterator[_Call]:
    """Operations without end in which tokens come back: the least important request first, then the most important
    one, then a long prompt.
    """
    blocks, budget = random.randint(5, 10), random.randint(3, 4)
    yield "scheduler", (blocks, 1, False, random.randint(3, 4), budget, 0, "priority", random.random() < 1 / 3)
    for turn in count():
        for name, most, outputs, priority, steps in (
            ("z", 2, (2, 5), 5, (1, 2)),
            ("a", 2, (2, 5), 0, (0, 0)),
            ("b", 6, (1, 2), random.randint(1, 2), (4, 8)),
        ):
            tokens = tuple(random.randrange(3) for _ in range(random.randint(1, most)))
            yield "add", (name, tokens, random.randint(*outputs), priority, turn)
            yield from (("schedule", ()), ("update", ())) * random.randint(*steps)


class _Steps:
    """Makes the operations of schedulers."""

    def __init__(self, random: Random, *, refunds: bool) -> None:
        self.random = random
        self.refunds = _refunds(random) if refunds else None
        self.opened = False
        self.time = 0

    def next(self, engine: Scheduler) -> _Call:
        """The next operation: `schedule` and `update` alternate."""
        random = self.random
        if self.refunds is not None:
            return next(self.refunds)
        if not engine.settings or (not self.opened and random.random() < 0.01):
            return self._scheduler()
        if len(engine.waiting) + len(engine.running) < random.randint(1, 5):
            return self._added(engine)
        drawn = random.random()
        if drawn < 0.04:
            known = [*engine.waiting, *engine.running]
            return "abort", (random.choice([*known, random.choice(_NAMES)]),)
        if drawn < 0.06:
            return _simulation(random, crowded=False)
        if drawn < 0.07 and not self.opened:
            return "reset", (random.random() < 0.6,)
        self.opened = not self.opened
        return ("schedule" if self.opened else "update"), ()

    def _scheduler(self) -> _Call:
        random = self.random
        self.tokens = [tuple(random.randrange(3) for _ in range(12)) for _ in range(2)]
        return "scheduler", (
            random.randint(4, 14),
            random.randint(1, 4),
            random.random() < 0.6,
            random.randint(1, 4),
            random.randint(2, 64),
            random.choice((0, 0, 2, 3)),
            random.choice(("fcfs", "priority")),
            random.random() < 1 / 3,
        )

    def _added(self, engine: Scheduler) -> _Call:
        random = self.random
        self.time += 1
        size = engine.kv.block_size
        shared = random.choice(self.tokens)[: size * random.randint(0, 3)]
        prompt = shared + tuple(random.randrange(3) for _ in range(random.randint(0 if shared else 1, 4)))
        return "add", (random.choice(_NAMES), prompt, random.randint(1, 5), random.randrange(3), self.time)


_SMALL = (1, 2, 3, 4, 7, 10)
_MEMORY = (0, 1, 39, 40, 41, 99, 100, 101, 160, 400, 1000, 3 << 53)


def explore(random: Random, length: int) -> list[Operation]:
    """Return a trace; a fifth of them are of the functions, which have no state."""
    if random.random() < 0.8:
        operations = generate(random, length)
        return [spoiled for operation in operations for spoiled in _spoiled(random, operation)]
    return [_function(random) for _ in range(length)]


def _spoiled(random: Random, operation: Operation) -> list[Operation]:
    """The operation, at times with a caller behind it who empties what it returned."""
    if operation.name in ("schedule", "update") and random.random() < 0.05:
        return [operation, Operation(name="spoil")]
    return [operation]


def _function(random: Random) -> Operation:
    def few(count: int, values: Sequence[int] = _SMALL) -> tuple[Argument, ...]:
        return tuple(random.choice(values) for _ in range(count))

    memory = random.choice((-5, *_MEMORY))
    workers = tuple(random.choice((-5, *_MEMORY)) for _ in range(random.randint(0, 3)))
    calls: dict[str, tuple[Argument, ...]] = {
        "page_size_bytes": few(4),
        "available_kv_memory": (random.choice(_MEMORY), random.choice((0, 1, 7, 29, 58, 90, 100, 101)), *few(3)),
        "get_num_blocks": (workers, *few(2), random.choice((None, None, 0, 5))),
        "check_enough_memory": (memory, *few(4)),
        "estimate_max_model_len": (memory, random.choice((1, 5, 16, 17, 40, 1000)), *few(3)),
        "max_concurrency": (random.choice((0, 1, 9, 100)), *few(2)),
    }
    name = random.choice(list(calls))
    return Operation(name=name, arguments=calls[name])
