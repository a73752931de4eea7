"""The speed of the reference and the comparison: operations per second of CPU time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grader.bench.figures import Figure, Target, ratio
from grader.bench.measure import Candidate, Tell
from grader.bench.subject import Subject
from grader.bench.traces import copied, on_pool
from grader.runtime.observation import Replayed
from grader.system import sandbox

__all__ = ["Compared", "compared"]

_TARGET = Target(300_000, at_least=True)
_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Compared:
    """The reports of two replays of the same cases."""

    name: str
    target: Target | None
    first: Replayed
    later: Replayed

    def candidates(self, subject: Subject, rounds: int) -> Iterator[Candidate]:
        """Yield the comparison of unseen cases, and the comparison for a later submission of a class."""
        unseen = iter([_unseen(self.first) for _ in range(rounds)])
        subject.compare(self.first)  # fills the cache; the bytes of `later` are not the same objects as the cached ones
        yield Candidate(self.name, partial(_compare_next, subject, unseen))
        yield Candidate(self._seen, partial(subject.compare, self.later))

    def figures(self, taken: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
        """Yield the operations per second."""
        count = sum(len(played.steps) for played in self.first.played)
        unseen, seen = ([count] * len(taken[name]) for name in (self.name, self._seen))
        yield ratio(f"operations/s played and compared, {self.name}", unseen, taken[self.name], target=self.target)
        yield ratio("  of cases seen before: compared only", seen, taken[self._seen])

    @property
    def _seen(self) -> str:
        return f"{self.name}, seen before"


def compared(subject: Subject, tell: Tell) -> list[Compared]:
    """Replay what is to be compared: long traces, and the shipped cases.

    The target is for pools of up to 64 blocks, whose records grow with the pool. It is checked where it is hardest to
    meet, with the work that a grader does for unseen cases. The shipped cases have no target: they have a few calls
    each, mostly creating and destroying, and some of them use far larger pools.
    """
    dense = [on_pool(subject.cases[0], _BLOCKS, operations=200, seed=seed) for seed in range(20)]
    found = []
    for name, cases, target in ((f"{_BLOCKS} blocks", dense, _TARGET), ("the cases", subject.cases, None)):
        tell(f"replaying {name}")
        with sandbox.workspace() as work:
            found.append(Compared(name, target, subject.replay(work, cases), subject.replay(work, cases)))
    return found


def _compare_next(subject: Subject, unseen: Iterator[Replayed]) -> None:
    subject.compare(next(unseen))


def _unseen(replayed: Replayed) -> Replayed:
    """Replace the cases by copies that the grader has not seen, so that what it caches for a trace does not help."""
    return replace(replayed, played=tuple(replace(one, case=copied(one.case)) for one in replayed.played))
