"""The speed of the reference and of the comparison: operations per second of CPU time. Neither has a target.

The reference plays a set of cases once; what it did is kept (grader.assignment.case_selection). Every submission is
compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from grader.bench.figures import Figure, ratio
from grader.bench.measure import Candidate, Tell
from grader.bench.subject import Subject
from grader.bench.traces import on_pool
from grader.core.case import Expected
from grader.core.model import play
from grader.runtime.observation import Replayed
from grader.system import sandbox

_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Operations:
    """Cases that the submission played."""

    name: str
    replayed: Replayed

    def candidates(self, subject: Subject) -> Iterator[Candidate]:
        """Yield the reference playing the cases, and the comparison of what the submission reported."""
        yield Candidate(self._played, partial(_play, subject, self.replayed))
        yield Candidate(self._compared, partial(subject.compare, self.replayed))

    def figures(self, taken: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
        """Yield the operations per second."""
        count = sum(len(played.steps) for played in self.replayed.played)
        for name in (self._played, self._compared):
            yield ratio(f"operations/s {name}", [count] * len(taken[name]), taken[name])

    @property
    def _played(self) -> str:
        return f"played by the reference, {self.name}"

    @property
    def _compared(self) -> str:
        return f"compared, {self.name}"


def replayed_operations(subject: Subject, tell: Tell) -> list[Operations]:
    """Replay long traces on a pool of 64 blocks, and the shipped cases.

    The shipped cases have a few calls each, mostly creating and destroying, and some of them use far larger pools.
    """
    model = subject.lab.model
    dense = [on_pool(subject.cases[0], model, blocks=_BLOCKS, operations=200, seed=seed) for seed in range(20)]
    results = []
    for name, cases in ((f"{_BLOCKS} blocks", dense), ("the cases", subject.cases)):
        tell(f"replaying {name}")
        with sandbox.workspace() as work:
            results.append(Operations(name, subject.replay(work, cases)))
    return results


def _play(subject: Subject, replayed: Replayed) -> None:
    for played in replayed.played:
        Expected.of(play(subject.lab.model(played.case.trace), played.case.trace))
