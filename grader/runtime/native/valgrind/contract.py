"""Tell breaches from memory errors: a breach is an access to shared memory that an operation may not touch.

Only differences of the native pass cost points. A breach is no memory error; it gives such a difference its line. A
breach without an effect after the call (a read, the same value stored again) does not even do that.

A breach costs nothing by itself because only the state after a call is judged (a block may be stored again as a whole,
or changed and changed back), and because Valgrind prints a repeated error without its address.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence

from grader.core.case import Case
from grader.core.model import Access, ModelFactory, Span
from grader.core.verdict import SourceLine
from grader.runtime.comparison import Comparison
from grader.runtime.native.valgrind.memory_faults import MemoryFault
from grader.runtime.protocol import Place

Allowed = Mapping[int, Sequence[tuple[Span, ...]]]
"""By case, what each of its operations may touch, up to and including the first with a wrong record."""

_MOST_SPANS = 2
_CONTRACT = struct.Struct(f"<{1 + 3 * _MOST_SPANS}i")
_NOTHING_ALLOWED = _CONTRACT.pack(1, *[0] * 3 * _MOST_SPANS)


def allowed_spans(comparison: Comparison, model: ModelFactory) -> tuple[tuple[Span, ...], ...]:
    """Return what each operation may touch (see `Model.allowed`), up to and including the first with a wrong record.

    There it depends on the program's own choice of blocks.
    """
    case, steps, follows = comparison.case, comparison.played.steps, comparison.follows
    allowed = case.expected.allowed[:follows]
    if comparison.ended_at <= follows:
        return allowed
    judging = model(case.trace)
    before = steps[follows - 1].record if follows else None
    judging.judge(before, case.trace.operations[follows], steps[follows].record)
    return (*allowed, judging.allowed())


class Contract:
    """What each operation of a case may touch. Operations after those of `allowed` may touch everything."""

    def __init__(self, case: Case, allowed: Sequence[tuple[Span, ...]], *, strict: bool) -> None:
        self.calls = [operation.name for operation in case.trace.operations]
        self.allowed = allowed
        self.strict = strict

    def guards(self, operation: int) -> bool:
        """Whether anything is forbidden in this operation."""
        return operation < len(self.allowed)

    def encoded(self) -> bytes:
        """Return the bytes that the driver reads: one struct contract for each operation."""
        free = bytes(_CONTRACT.size * (len(self.calls) - len(self.allowed)))
        return b"".join([*map(self._encode, self.allowed), free])

    def _encode(self, spans: tuple[Span, ...]) -> bytes:
        if not spans:
            return _NOTHING_ALLOWED
        places = [span[:3] for span in spans if not (self.strict and span.access is Access.READ)]
        numbers = [number for place in places for number in place]
        return _CONTRACT.pack(1, *numbers, *[0] * (3 * _MOST_SPANS - len(numbers)))


class Classified:
    """Separates breaches from memory errors where Valgrind only counted them: it prints the same stack once."""

    def __init__(
        self, contracts: Mapping[int, Contract], errors: Sequence[MemoryFault], counted: Mapping[Place, int]
    ) -> None:
        self.contracts = contracts
        self.guarded = {place: count for place, count in counted.items() if contracts[place[0]].guards(place[1])}
        self.breaches = [error for error in errors if error.breach]
        others = [error for error in errors if not error.breach and not error.leak]
        self.printed = Counter((breach.case, breach.operation) for breach in self.breaches)
        self.faulty = {(error.case, error.operation) for error in others}
        self.faulty_calls = {self._call(error.case, error.operation) for error in others}
        self.breaching_calls = {self._call(breach.case, breach.operation) for breach in self.breaches}

    def is_breach(self, place: Place) -> bool:
        """Whether all errors counted there are breaches. In a call that has shown both, repeated ones count as both."""
        if place not in self.guarded or place in self.faulty:
            return False
        call = self._call(*place)
        repeats = self.guarded[place] > self.printed[place]
        return call in self.breaching_calls and not (repeats and call in self.faulty_calls)

    def lines(self, *, stores: bool) -> dict[Place, tuple[SourceLine, ...]]:
        """Return the lines of each operation's breaches; where it only repeats breaches, those of the same call."""
        here: dict[Place, MemoryFault] = {}
        same: dict[str, MemoryFault] = {}
        for breach in self.breaches:
            if breach.stores is stores:
                here.setdefault((breach.case, breach.operation), breach)
                same.setdefault(self._call(breach.case, breach.operation), breach)
        first = {place: here.get(place) or same.get(self._call(*place)) for place in self.guarded}
        return {place: breach.lines for place, breach in first.items() if breach is not None}

    def _call(self, case: int, operation: int) -> str:
        calls = self.contracts[case].calls
        return calls[min(operation, len(calls) - 1)]
