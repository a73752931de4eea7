"""The counter as a lab of this process and of the workers that it starts: no copy of the house, 20 ms for a grading."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from grader import cli
from grader.classroom import batch, workers
from grader.classroom.workers import Graded, Task, grading_plan
from grader.cli import batch as commands
from grader.labs import LABS, LabEntry
from grader.tests.support.counter.lab import lab
from grader.tests.support.counter_house import BELOW, RIGHT

UNREADABLE = "add() {\n    if true; then total=1\n}\n"
"""A submission that the shell cannot read."""
COUNTERS = {"below": BELOW, "copied": BELOW, "right": RIGHT, "unreadable": UNREADABLE}
"""A class of four, two of whom submitted the same."""


def grade(task: Task) -> Graded:
    """Grade a submission in a process that need not know the counter."""
    with patch.dict(LABS, counter=LabEntry("counter.sh", lab)):
        return workers.grade(task)


@contextmanager
def added_counter() -> Iterator[None]:
    """Let the counter be a lab of this process and of workers that start meanwhile."""
    with patch.dict(LABS, counter=LabEntry("counter.sh", lab)), patch.object(batch, "grade", grade):
        yield


@contextmanager
def counters_in_process(**changes: Any) -> Iterator[None]:
    """Let the counter be a lab, with these fields of `Lab` changed, and let commands grade in this process."""
    known = replace(lab(), **changes)
    with (
        patch.dict(LABS, counter=LabEntry("counter.sh", lambda: known)),
        patch.object(commands, "ProcessPool", lambda _: in_process()),
    ):
        grading_plan.cache_clear()  # plans of the counter contain the lab
        try:
            yield
        finally:
            grading_plan.cache_clear()


def main() -> None:
    """Run the command line with the counter among its labs."""
    with added_counter():
        cli.main()


def command(*arguments: str | Path) -> list[str]:
    """Return `grade` with the counter among its labs and these arguments, as an argument list."""
    return [sys.executable, "-c", f"from {__name__} import main; main()", *map(str, arguments)]


class InProcess(Executor):
    """Makes each call at once, in this process; dies at a source that contains `breaks_at`, as a pool does."""

    def __init__(self, breaks_at: bytes | None = None) -> None:
        self.breaks_at, self.broken = breaks_at, False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Make the call now."""
        self.broken = self.broken or (self.breaks_at is not None and self.breaks_at in args[0].source.content)
        future: Future[Any] = Future()
        if self.broken:
            future.set_exception(BrokenExecutor())
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@contextmanager
def in_process(breaks_at: bytes | None = None) -> Iterator[Executor]:
    """Make workers of this process."""
    yield InProcess(breaks_at)
