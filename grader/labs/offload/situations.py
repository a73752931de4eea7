"""The situation of a call of the runner, in the words that known mistakes name, from the state before it.

What the sentence that decided says already has no word of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reference.operation import Operation, Reply


def circumstances(before: Mapping[str, Any], operation: Operation, _: Reply, __: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words for a call."""
    if operation.name != "decode" or before["kind"] != "runner":
        return
    layers, _blocks, size, buffers, _longest = before["settings"]
    if buffers > layers:
        yield "more-buffers"
    if (
        before["running"] == [operation.arguments[0]]
        and dict(before["lengths"])[operation.arguments[0]] % size == size - 1
    ):
        yield "flushes"
