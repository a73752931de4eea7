"""What a lab's driver needs to know of its operations, and what its records mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grader.core.case import Signature
from grader.core.model import ModelFactory
from reference.operation import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The driver of a lab: a C file (`CProject.driver`) and how it is spoken to."""

    operations: Mapping[str, Signature]
    """In the order of the driver's enum of codes."""
    settings: Callable[[Trace], tuple[int, ...]]
    """The numbers that the driver gets before the operations of a trace."""
    places: Callable[[bytes, int], Mapping[str, int]]
    """The words of a record of so many targets, by the names that differences have for them."""
    model: ModelFactory
    """The lab's model: it says which bytes of an engine's memory an operation may touch."""

    @property
    def codes(self) -> dict[str, int]:
        """The driver's number of each operation."""
        return {name: number for number, name in enumerate(self.operations)}
