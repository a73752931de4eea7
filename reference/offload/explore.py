"""Random traces for searches: those of `generate`, and what no case of random traces has.

Second managers and runners stand beside the first ones, a sequence has the number 0, a buffer is loaded before anything
was computed, and a load gets a longer table than it needs.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from reference.offload.generate import generate
from reference.operation import Operation

_FIRST_LOAD = (Operation(name="load", arguments=(0, 0, (0,), 1)), Operation(name="use", arguments=(0, 1)))


def explore(random: Random, length: int) -> list[Operation]:
    """Return a trace of a manager, an engine or a runner."""
    operations = generate(random, length)
    first = operations[0]
    more = _FIRST_LOAD if first.name == "engine" and random.random() < 0.2 else ()
    number_0 = random.random() < 0.2
    trace = [first, *more]
    for operation in operations[1:]:
        changed = _with_number_0(operation) if number_0 else operation
        trace += [_with_longer_table(random, changed, first), *_another(random, first.name)]
    return trace


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


def _with_number_0(operation: Operation) -> Operation:
    """The same for the sequence 0 in the place of a."""
    return replace(operation, arguments=tuple(0 if value == "a" else value for value in operation.arguments))


def _with_longer_table(random: Random, operation: Operation, engine: Operation) -> Operation:
    """At times a load whose table has another block behind those that it needs. One that is too short stays so."""
    if operation.name != "load" or random.random() >= 0.2:
        return operation
    buffer, layer, ids, tokens = operation.arguments
    _, blocks, size, *_ = engine.arguments
    assert isinstance(ids, tuple)
    assert isinstance(blocks, int)
    assert isinstance(size, int)
    assert isinstance(tokens, int)
    if len(ids) * size < tokens:
        return operation
    others = [block for block in range(blocks) if block not in ids]
    longer = (*ids, random.choice(others)) if others else ids
    return replace(operation, arguments=(buffer, layer, longer, tokens))
