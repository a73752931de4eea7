"""Long traces for pools of any size; the calls are the same for each size, so only the pool grows."""

from __future__ import annotations

import random
from dataclasses import replace

from grader.core.case import Case, Expected
from grader.core.model import ModelFactory, play
from reference.operation import Operation, Trace

_MOST_ALIVE = 8
_BLOCK_BYTES = 64


def on_pool(pattern: Case, model: ModelFactory, *, blocks: int, operations: int, seed: int) -> Case:
    """Make a case with about `operations` calls, most of them successful in a pool of 64 blocks or more."""
    chance = random.Random(seed)
    calls = [Operation(name="llm_init", arguments=(blocks * _BLOCK_BYTES,))]
    alive: list[int] = []
    for new in range(1, operations):
        kind = chance.random()
        if not alive or (kind < 0.10 and len(alive) < _MOST_ALIVE):
            calls.append(Operation(name="create_sequence", arguments=(new, chance.randint(1, 96))))
            alive.append(new)
        elif kind < 0.15 and len(alive) < _MOST_ALIVE:
            calls.append(Operation(name="fork_sequence", arguments=(chance.choice(alive), new)))
            alive.append(new)
        elif kind < 0.25:
            calls.append(Operation(name="free_sequence", arguments=(alive.pop(chance.randrange(len(alive))),)))
        else:
            calls.append(Operation(name="append_kv", arguments=(chance.choice(alive), chance.randint(0, 1 << 30))))
    calls.append(Operation(name="llm_destroy"))
    trace = Trace(operations=tuple(calls), settings={"seed": pattern.trace.settings["seed"]})
    expected = Expected.of(play(model(trace), trace))
    return replace(pattern, name=f"bench/{blocks}_{seed}", trace=trace, expected=expected)
