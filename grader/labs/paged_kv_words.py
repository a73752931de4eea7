"""Placeholder."""
from collections.abc import Iterator
from typing import Any
from reference.operation import Operation
def describe_poke(operation: Operation) -> str:
    return str(operation)
def draw(described: dict[str, Any]) -> Iterator[str]:
    yield str(described)
