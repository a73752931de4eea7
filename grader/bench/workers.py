"""Two gradings side by side: how much of two processors becomes work."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from grader import pipeline
from grader.bench.figures import Figure, Target, best
from grader.bench.measure import Tell, wall_of
from grader.grammar import Case
from grader.labs import LABS
from grader.record import Record

__all__ = ["efficiency"]

_EACH = 2
"""Gradings for each worker and round: short rounds find a quiet moment sooner."""


def efficiency(path: Path, lab_name: str, cases: Sequence[Case], rounds: int, *, target: Target, tell: Tell) -> Figure:
    """Seconds of one worker for N gradings over those of two for 2 N."""
    alone: list[float] = []
    together: list[float] = []
    with _pool(1, path, lab_name, cases) as one, _pool(2, path, lab_name, cases) as two:
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}: two workers")
            alone.append(wall_of(lambda: _graded(one, _EACH)))
            together.append(wall_of(lambda: _graded(two, 2 * _EACH)))
    return best("two workers on two cores, efficiency", alone, together, target=target)


@contextmanager
def _pool(workers: int, path: Path, lab_name: str, cases: Sequence[Case]) -> Iterator[ProcessPoolExecutor]:
    """Workers that have everything imported and loaded, as in a grader that goes on running."""
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_prepare, initargs=(path, lab_name, cases)) as pool:
        try:
            _graded(pool, 2 * workers)
            yield pool
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _graded(pool: ProcessPoolExecutor, count: int) -> None:
    """Let the pool grade that often. Workers start in here, deaf to Ctrl-C: it is for the process that leads."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        futures = [pool.submit(_grade) for _ in range(count)]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for future in futures:
        future.result()


_prepared: list[Callable[[], Record]] = []
"""What a worker does, once it has been told."""


def _prepare(path: Path, lab_name: str, cases: Sequence[Case]) -> None:
    lab = LABS[lab_name]()
    _prepared[:] = [partial(pipeline.grade, path, lab, cases, seed=lab.rubric.seed)]


def _grade() -> None:
    _prepared[0]()
