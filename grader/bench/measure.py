"""CPU time and wall time of pieces of work, measured side by side in rounds.

CPU time is user + system time of this process and of all children that it waited for, as getrusage reports it. On a
machine with other load the CPU times of two candidates vary together, so their quotient stays stable.

`pyperf` is not used: it measures one piece of work after the other by wall time, each in processes of its own, and does
not count the CPU time of children, in which nearly all of a grading is spent.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Work = Callable[[], object]
Tell = Callable[[str], None]
"""Called with a description of what is being done."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Work to measure; an expensive candidate is measured in the first `most` rounds only."""

    name: str
    work: Work
    most: int = 1_000_000


def rounds_of(candidates: Sequence[Candidate], rounds: int, tell: Tell) -> dict[str, list[float]]:
    """Return the CPU seconds of each candidate in each round; every round runs them in another order."""
    taken: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    order = random.Random(0)
    for number in range(rounds):
        due = [candidate for candidate in candidates if number < candidate.most]
        for candidate in order.sample(due, len(due)):
            tell(f"round {number + 1} of {rounds}: {candidate.name}")
            taken[candidate.name].append(cpu_of(candidate.work))
    return taken


def cpu_of(work: Work) -> float:
    """Run `work`; return the CPU seconds of this process and of the children that it waited for."""
    before = _cpu()
    work()
    return _cpu() - before


def wall_of(work: Work) -> float:
    """Run `work`; return the wall-clock seconds."""
    before = time.monotonic()
    work()
    return time.monotonic() - before


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
