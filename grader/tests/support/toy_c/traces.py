"""Random traces of the ring, for searches."""

from __future__ import annotations

from random import Random

from reference.operation import Operation


def generate(random: Random, length: int) -> list[Operation]:
    """Put and take values of a small ring, sometimes more than fit in it or than there are."""
    calls = []
    for _ in range(length - 2):
        values = tuple(random.choices(range(9), k=random.randrange(3)))
        calls.append(random.choice([Operation(name="ring_put", arguments=(values,)), Operation(name="ring_take")]))
    return [Operation(name="ring_new", arguments=(random.randrange(1, 4),)), *calls, Operation(name="ring_free")]
