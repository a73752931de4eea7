"""Is a program another one under Valgrind? Whoever looks where he runs could hide there what is wrong.

No state is reported there; but the heap after each operation is, and how long it all took. Both are known natively.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from grader.runtime.observation import PlayedStep
from grader.runtime.source_lines import Place

__all__ = ["Heap", "diverged", "enough"]

Heap = tuple[int, int, int]
"""Allocations and frees of an operation, and what was live after it."""

_LEAST_SECONDS, _BUILDS, _SLOWER = 2.0, 20, 100  # several times what Valgrind was seen to need, in each
_HARNESS_SECONDS = 0.0005  # of a case natively: our process for it, which Valgrind does without


def enough(natively: Iterable[float], building: float) -> float:
    """The CPU seconds that Valgrind needs at most for cases that took so many natively.

    `building` is what compiling and linking took here: so fast is this machine.
    """
    start = max(_LEAST_SECONDS, _BUILDS * building)
    return start + _SLOWER * sum(max(0.0, seconds - _HARNESS_SECONDS) for seconds in natively)


def diverged(
    runs: Iterable[tuple[Mapping[int, Sequence[Heap]], Collection[int]]],
    steps: Mapping[int, Sequence[PlayedStep]],
    wrong: Collection[Place],
) -> dict[int, int]:
    """By case, the first operation that did otherwise than natively, before any error that would explain it.

    A run is what it did by case, and the cases that it brought to their end.
    """
    found: dict[int, int] = {}
    for cases, ended in runs:
        for case, did in cases.items():
            natively = [(step.allocations, step.frees, step.live) for step in steps.get(case, ())]
            pairs = zip_longest(did, natively) if case in ended else zip(did, natively, strict=False)
            first = next((number for number, (here, there) in enumerate(pairs) if here != there), None)
            if natively and first is not None and not any((case, number) in wrong for number in range(first + 1)):
                found[case] = first
    return found
