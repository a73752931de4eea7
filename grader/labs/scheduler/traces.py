"""Random traces: small pools, requests that begin with equal tokens, ids that occur again, simulations in full memory.

No trace contains a call whose result the handout leaves open. Searches (`explore`) also have traces of the functions
of Task 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from reference.operation import Argument, Operation
from reference.scheduler.scheduler import Scheduler

_NAMES = "abcdefgh"
_Call = tuple[str, tuple[Argument, ...]]
_Range = tuple[int, int]
_POLICIES = ("max", "pow2", "oracle", "paged")


def generate(random: Random, length: int) -> list[Operation]:
    """Return a trace of schedulers and simulations. In 1 of 3 traces, preemptions return tokens to the budget."""
    return _trace(random, length, _Steps(random, _refunds(random) if random.random() < 1 / 3 else None))


def _trace(random: Random, length: int, maker: _Steps) -> list[Operation]:
    engine, operations = Scheduler(), list[Operation]()
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
    """Yield endless operations in which a preempted request's tokens return to the budget: first the least important
    request is added, then the most important one, then one with a long prompt.
    """
    blocks, budget = random.randint(5, 10), random.randint(3, 4)
    yield "scheduler", (blocks, 1, False, random.randint(3, 4), budget, 0, "priority", random.random() < 1 / 3)
    for turn in count():
        yield from _served(
            random,
            turn,
            ("z", (1, 2), (2, 5), 5, (1, 2)),
            ("a", (1, 2), (2, 5), 0, (0, 0)),
            ("b", (1, 6), (1, 2), random.randint(1, 2), (4, 8)),
        )


def _two_victims(random: Random) -> Iterator[_Call]:
    """Yield endless operations in which the most important request preempts two that this step has scheduled already.

    The tokens of the two return to the step's budget, and a request with a long prompt gets the rest of the budget.
    """
    size = random.randint(3, 4)
    yield "scheduler", (6, size, False, 4, 2 * size + random.randint(3, 4), 2 * size, "priority", False)
    for turn in count():
        yield from _served(
            random,
            turn,
            ("y", (1, 1), (3, 5), 5, (0, 0)),
            ("z", (1, 1), (3, 5), 5, (1, 1)),
            ("a", (3 * size + 1, 4 * size - 1), (1, 1), 0, (0, 0)),
            ("b", (2 * size + 1, 3 * size), (1, 2), random.randint(1, 2), (4, 8)),
        )


def _served(random: Random, turn: int, *requests: tuple[str, _Range, _Range, int, _Range]) -> Iterator[_Call]:
    """Yield `add` for each request (name, length of the prompt, outputs, priority, steps), followed by its steps."""
    for name, length, outputs, priority, steps in requests:
        tokens = tuple(random.randrange(3) for _ in range(random.randint(*length)))
        yield "add", (name, tokens, random.randint(*outputs), priority, turn)
        yield from (("schedule", ()), ("update", ())) * random.randint(*steps)


class _Steps:
    """Makes the operations of schedulers."""

    def __init__(self, random: Random, made: Iterator[_Call] | None) -> None:
        self.random = random
        self.made = made
        self.opened = False
        self.time = 0

    def next(self, engine: Scheduler) -> _Call:
        """Return the next operation: `schedule` and `update` alternate."""
        random = self.random
        if self.made is not None:
            return next(self.made)
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
    """Return a trace: 1 of 5 is of functions, which have no state, 1 of 10 preempts two requests in a step."""
    drawn = random.random()
    if drawn < 0.2:
        return [_function(random) for _ in range(length)]
    maker = _Steps(random, _two_victims(random))
    operations = _trace(random, length, maker) if drawn < 0.3 else generate(random, length)
    return [spoiled for operation in operations for spoiled in _spoiled(random, operation)]


def _spoiled(random: Random, operation: Operation) -> list[Operation]:
    """Return the operation, sometimes followed by `spoil`: the caller empties the result."""
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
