"""What holds of every engine whose states are plain values, on random traces."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from reference.operation import Operation
from reference.oracle import Oracle


def assert_goes_on_from_every_state(make: type[Oracle], operations: Iterable[Operation]) -> None:
    """A new engine that takes over each state does the same as the one that was there all the time."""
    engine = make()
    for operation in operations:
        other = make()
        other.restore(json.loads(json.dumps(engine.state())))
        assert other.state() == engine.state(), operation
        assert other.apply(operation) == engine.apply(operation), operation
        assert other.state() == engine.state(), operation


def assert_refusals_change_nothing(
    make: type[Oracle], operations: Iterable[Operation], of_an_operation: frozenset[str] = frozenset()
) -> int:
    """A refused call leaves all but what is said of each operation as it was. Return how many calls were refused."""
    engine, refusals = make(), 0
    for operation in operations:
        before = _without(engine.state(), of_an_operation)
        if engine.apply(operation).refused:
            refusals += 1
            assert _without(engine.state(), of_an_operation) == before, operation
    return refusals


def _without(state: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in names}
