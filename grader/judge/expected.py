"""The reference's results for a trace, cached because they are the same for every submission of a class."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate

from grader.core.identity_key import Same
from grader.runtime.observation import PlayedStep
from reference.delta import applied, length_after
from reference.model import ModelFactory, Span
from reference.operation import Reply, Trace

__all__ = ["Right", "right_of"]

_MOST_KEPT = 1024
_TIMES_LARGER, _MORE_BYTES, _MORE_OPERATIONS = 4, 2048, 16
"""The limit of a record: a multiple of the reference's largest, plus bytes for each operation and for extra ones."""


def right_of(trace: Trace, model: ModelFactory) -> Right:
    """Return the cached `Right` of the trace, or a new one."""
    return _right(Same(trace), model)


class Right:
    """The reference's results for a trace; the reference plays it with the first program that is compared with it."""

    def __init__(self, trace: Trace, model: ModelFactory) -> None:
        self.replies: tuple[Reply, ...] = ()
        self.allowed: list[tuple[Span, ...]] = []
        self._trace = trace
        self._model = model
        self._deltas: list[bytes] = []

    def followed_by(self, steps: Sequence[PlayedStep]) -> int:
        """The number of operations, from the first on, that leave a program in the reference's state, byte by byte."""
        if not self._deltas:
            return self._played_beside(steps)
        for number, (delta, step) in enumerate(zip(self._deltas, steps, strict=False)):
            if delta != step.delta:
                if len(self._records[number]) != step.length or self._records[number] != step.record:
                    return number
                self._deltas[number] = step.delta  # the next program will probably report it in the same way
        return min(len(self._deltas), len(steps))

    def _played_beside(self, steps: Sequence[PlayedStep]) -> int:
        """Return the same number and fill the cache: with the program's own deltas as long as they are right."""
        model = self._model(self._trace)
        operations = iter(self._trace.operations)
        replies: list[Reply] = []
        allowed: list[tuple[Span, ...]] = []
        deltas: list[bytes] = []
        for step, operation in zip(steps, operations, strict=False):  # so zip takes no operation without a step
            replies.append(model.apply(operation))
            allowed.append(model.allowed())
            if model.delta() != step.delta:  # several deltas can describe the same change
                record = model.record()
                if len(record) != step.length or record != step.record:
                    break
            deltas.append(step.delta)
        follows = len(deltas)
        if follows < len(replies):
            deltas.append(model.delta())
        for operation in operations:
            replies.append(model.apply(operation))
            allowed.append(model.allowed())
            deltas.append(model.delta())
        self.replies, self.allowed, self._deltas = tuple(replies), allowed, deltas
        return follows

    @cached_property
    def most_bytes(self) -> int:
        """The most bytes that any record needs, even of a program that differs from the reference in its structures."""
        lengths = accumulate(self._deltas, lambda length, delta: length_after(delta, length), initial=0)
        return _TIMES_LARGER * max(lengths) + _MORE_BYTES * (len(self._deltas) + _MORE_OPERATIONS)

    @cached_property
    def _records(self) -> list[bytes]:
        records = accumulate(self._deltas, lambda record, delta: applied(delta, record), initial=b"")
        return list(records)[1:]


@lru_cache(maxsize=_MOST_KEPT)
def _right(trace: Same[Trace], model: ModelFactory) -> Right:
    return Right(trace.value, model)
