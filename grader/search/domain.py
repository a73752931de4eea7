"""The domain of a search: what a handout says something about, as far as a lab's random traces show it.

A smaller trace must not leave it: a handout may say nothing about blocks without tokens or about a request without a
manager, and there every program is right. The random traces of a lab stay within its handout, so a call follows only
what it follows there, and its values are not smaller than there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from grader.core.case import Case
from reference.operation import Argument, Operation
from reference.oracle import Generator

_TRACES, _LENGTH = 120, 40
"""The traces from which a domain is learned."""
_BEGINNINGS = 600
"""The number of traces of which only the first operation is looked at."""


@dataclass(slots=True)
class Domain:
    """What occurs in some traces."""

    after: dict[str, set[str]] = field(default_factory=dict)
    """By the name of an operation with which traces begin: the operations that come after it."""
    least: dict[tuple[str, int], int] = field(default_factory=dict)
    """The smallest number in an argument, by operation and place."""
    shortest: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """The shortest list in an argument, by operation, place, and the number of lists that it lies in."""

    alone: frozenset[str] = frozenset()
    """Operations that need nothing before them, although no random trace begins with them: cases do."""

    @classmethod
    def of(cls, generate: Generator, cases: Iterable[Case] = ()) -> Domain:
        """Learn it from random traces; from cases only which operations need nothing before them."""
        domain = cls(alone=frozenset(operation.name for case in cases for operation in case.trace.operations[:1]))
        for seed in range(_BEGINNINGS):
            domain.after.setdefault(generate(seed, 2)[0].name, set())
        domain.learn(generate(seed, _LENGTH) for seed in range(_TRACES))
        return domain

    def learn(self, traces: Iterable[Sequence[Operation]]) -> None:
        """Add what occurs in these traces."""
        traces = [trace for trace in traces if trace]
        for trace in traces:
            self.after.setdefault(trace[0].name, set())
        for trace in traces:
            for begun, operation in self._with_beginnings(trace):
                self.after[begun].add(operation.name)
                for place, argument in enumerate(operation.arguments):
                    key = operation.name, place
                    self.least[key] = min([self.least.get(key, 2**63), *_numbers(argument)])
                    for depth, length in _lengths(argument):
                        self.shortest[*key, depth] = min(self.shortest.get((*key, depth), 2**63), length)

    def has(self, trace: Sequence[Operation]) -> bool:
        """Whether every operation comes after one that it may follow, with values that are not too small."""
        if all(operation.name in self.alone for operation in trace):
            return bool(trace) and all(map(self._allows, trace))
        if trace[0].name not in self.after:
            return False
        return all(
            operation.name in self.after[begun] and self._allows(operation)
            for begun, operation in self._with_beginnings(trace)
        )

    def _with_beginnings(self, trace: Sequence[Operation]) -> Iterator[tuple[str, Operation]]:
        """Yield each operation with the last one before it (or itself) with which a trace may begin."""
        begun = trace[0].name
        for operation in trace:
            begun = operation.name if operation.name in self.after else begun
            yield begun, operation

    def _allows(self, operation: Operation) -> bool:
        return all(
            min(_numbers(argument), default=2**63) >= self.least.get((operation.name, place), 2**63)
            and all(
                length >= self.shortest.get((operation.name, place, depth), 2**63)
                for depth, length in _lengths(argument)
            )
            for place, argument in enumerate(operation.arguments)
        )


def _numbers(value: Argument) -> Iterator[int]:
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value


def _lengths(value: Argument, depth: int = 0) -> Iterator[tuple[int, int]]:
    """Yield for each list in a value in how many others it lies, and its length."""
    if isinstance(value, tuple):
        yield depth, len(value)
        for item in value:
            yield from _lengths(item, depth + 1)
