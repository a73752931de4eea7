"""Random traces for searches: those of `generate`, and traces of the functions of Task 5, which those leave out."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from reference.operation import Argument, Operation
from reference.scheduler.generate import generate

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
