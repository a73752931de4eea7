"""Measure gradings on two workers of a batch: how much of two processors becomes work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

from grader.assignment.settings import Settings
from grader.assignment.source import collect
from grader.bench.figures import Figure, Target, best
from grader.bench.measure import Tell, wall_of
from grader.classroom.fingerprint import grading_plan
from grader.classroom.workers import ProcessPool, Task, grade

_EACH = 2
"""Gradings per worker and round: a short round is more likely to meet no other load."""


def efficiency(path: Path, lab_name: str, rounds: int, *, target: Target, tell: Tell) -> Figure:
    """Divide the wall seconds of one worker for N gradings by those of two workers for 2 N gradings."""
    plan = grading_plan(Settings(lab=lab_name))
    source = collect(path, plan.lab.source_name, rule="")
    task = Task(key="", source=source, settings=plan.settings, fingerprint=plan.fingerprint, made_of=plan.made_of)
    alone: list[float] = []
    together: list[float] = []
    with _warm(1, task) as one_worker, _warm(2, task) as two_workers:
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}: two workers")
            alone.append(wall_of(lambda: _graded(one_worker, task, _EACH)))
            together.append(wall_of(lambda: _graded(two_workers, task, 2 * _EACH)))
    return best("two workers on two cores, efficiency", alone, together, target=target)


@contextmanager
def _warm(workers: int, task: Task) -> Iterator[Executor]:
    """Start workers that have everything imported and loaded, as in a running batch."""
    with ProcessPool(workers) as pool:
        _graded(pool, task, 2 * workers)
        yield pool


def _graded(pool: Executor, task: Task, count: int) -> None:
    """Let the pool grade the task `count` times."""
    for future in [pool.submit(grade, task) for _ in range(count)]:
        done = future.result()
        assert done.stored is not None, done.failure
