"""Detect a program that behaves differently under Valgrind: it could detect Valgrind and hide its faults there.

No state is reported under Valgrind. But the heap after each operation is, and the total time. Both are known natively.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest

from grader.runtime.native.native_played import NativeStep
from grader.runtime.protocol import Place

Heap = tuple[int, int, int]
"""Allocations and frees of an operation, and what was live after it."""

_LEAST_SECONDS, _BUILDS, _SLOWER = 2.0, 12, 100  # each is several times what Valgrind was seen to need
_HARNESS_SECONDS = 0.0005  # per native case, for its own process; under Valgrind there is no such process


def enough(natively: Iterable[float], building: float) -> float:
    """Return the most CPU seconds that Valgrind needs for cases that took the seconds `natively`.

    `building` is the time that compiling and linking took here: a measure of this machine's speed.
    """
    start = max(_LEAST_SECONDS, _BUILDS * building)
    return start + _SLOWER * sum(max(0.0, seconds - _HARNESS_SECONDS) for seconds in natively)


def diverged(
    runs: Iterable[tuple[Mapping[int, Sequence[Heap]], Collection[int]]],
    steps: Mapping[int, Sequence[NativeStep]],
    wrong: Collection[Place],
) -> dict[int, int]:
    """Return by case the first operation that differs from the native run, before any error that would explain it.

    A run consists of what it did, by case, and of the cases that it brought to their end.
    """
    first_differing: dict[int, int] = {}
    for cases, ended in runs:
        for case, did in cases.items():
            natively = [(step.allocations, step.frees, step.live) for step in steps.get(case, ())]
            pairs = zip_longest(did, natively) if case in ended else zip(did, natively, strict=False)
            first = next((number for number, (here, there) in enumerate(pairs) if here != there), None)
            if natively and first is not None and not any((case, number) in wrong for number in range(first + 1)):
                first_differing[case] = first
    return first_differing
