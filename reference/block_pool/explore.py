"""Random traces for searches: those of `generate`, the calls that they leave out, and several pools in one trace."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from reference.block_pool.generate import generate
from reference.operation import Operation

_CHAINS = (((1, 2),), ((1,), (2,)), ((12,),), ((1, 2), (3,)), ((1,), (2, 3)), ((2, 1),))


def explore(random: Random, length: int) -> list[Operation]:
    """Return a trace; a quarter of them begin anew in the middle."""
    parts = 2 if random.random() < 0.25 else 1
    operations = [operation for _ in range(parts) for operation in generate(random, max(1, length // parts))]
    return [varied for operation in operations for varied in _varied(random, operation)]


def _varied(random: Random, operation: Operation) -> list[Operation]:
    """The operation, at times in another form, or with another one behind it."""
    drawn = random.random()
    if operation.name == "free_blocks" and drawn < 0.3:
        return [replace(operation, name="free_iterator")]
    if drawn < 0.05:
        return [operation, Operation(name="clear_lists")]
    if drawn > 0.8 and operation.name == "new":
        return [operation, Operation(name="same_hash", arguments=(random.choice(_CHAINS), random.choice(_CHAINS)))]
    return [operation]
