"""Random traces for searches: those of `generate`, with second managers and runners beside the first ones."""

from __future__ import annotations

from random import Random

from reference.offload.generate import generate
from reference.operation import Operation


def explore(random: Random, length: int) -> list[Operation]:
    """Return a trace of a manager, an engine or a runner."""
    operations = generate(random, length)
    kind = operations[0].name
    return [each for operation in operations for each in (operation, *_another(random, kind))]


def _another(random: Random, kind: str) -> tuple[Operation, ...]:
    """At times a second object, which must not meet the first one."""
    if random.random() >= 0.04:
        return ()
    if kind == "manager":
        blocks, size = random.randint(1, 4), random.randint(1, 3)
        return (Operation(name="another_manager", arguments=(blocks, size, random.randint(1, blocks * size))),)
    if kind == "runner":
        return (Operation(name="another_runner", arguments=(random.choice("abc"), (random.randrange(7),))),)
    return ()
