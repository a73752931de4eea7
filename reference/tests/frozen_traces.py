"""Frozen traces: what another system answered and had, in a file beside the test, and how an engine plays them.

A file holds for each trace its seed, its operations, and after each the reply and the parts of the state that changed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reference.operation import Argument, Operation
from reference.oracle import Oracle


def traces_in(path: Path) -> list[dict[str, Any]]:
    """The traces of a packed file."""
    traces: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traces"]
    return traces


def argument(value: Any) -> Argument:
    """A value of JSON as an operation has it."""
    return tuple(map(argument, value)) if isinstance(value, list) else value


def replay(trace: dict[str, Any]) -> Iterator[tuple[Operation, Any, dict[str, Any]]]:
    """Each operation with the reply, and the compared parts of the state after it."""
    state = dict[str, Any]()
    for (name, arguments), (reply, changed) in zip(trace["operations"], trace["after"], strict=True):
        state = state | changed
        yield Operation(name=name, arguments=tuple(map(argument, arguments))), reply, state


def difference(trace: dict[str, Any], engine: Oracle, parts: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    """Play a trace on a new engine; return a sentence on the first difference, or nothing."""
    for operation, reply, state in replay(trace):
        theirs = {"reply": reply, **state}
        mine = {"reply": json.loads(engine.apply(operation).text), **parts(engine.state())}
        different = [f"{key}: vLLM {theirs[key]}, the engine {mine[key]}" for key in mine if mine[key] != theirs[key]]
        if different:
            return "; ".join([f"seed {trace['seed']}, {operation}", *different])
    return ""
