"""What workers do in the place of a grading, and what happens to their processes then.

A process that starts for such a call imports this module, so it imports neither pytest nor Dask.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from grader import pipeline
from grader.assignment.lab import Settings
from grader.assignment.source import Source
from grader.classroom.stored_result import StoredRecord
from grader.classroom.workers import Graded, Task, grading_plan
from grader.core.errors import BrokenTool, DriverError, OutOfRoom, StoreFailure
from grader.core.record import Record
from grader.system.confine.launcher import user_of_this_process
from grader.tests.support import counter_lab
from grader.tests.support.handmade import outcome, record_of

_TROUBLE = {
    "raises": ValueError("boom"),
    "driver": DriverError("no driver"),
    "full": OutOfRoom("no room"),
    "tool": BrokenTool("no gcc"),
    "disk": OSError(28, "No space left on device"),
    "store": StoreFailure("no store"),
}


FEW_IN_C = Settings(lab="paged_kv", case="append/copy_*", memory_checker=False)


def task(text: str = "", **changed: object) -> Task:
    """Return a task of these settings; fields can be replaced."""
    plan = grading_plan(FEW_IN_C)
    source = Source(name="llm_memory.c", content=text.encode())
    usual = Task(key=text, source=source, settings=FEW_IN_C, fingerprint=plan.fingerprint, made_of=plan.made_of)
    return replace(usual, **changed)  # type: ignore[arg-type]  # fields of a task


def deadly(task: Task) -> Graded:
    """End this process at one source; the others have a point."""
    if b"deadly" in task.source.content:
        os.kill(os.getpid(), signal.SIGKILL)
    return Graded(key=task.key, stored=StoredRecord.of(task.key, record_of(outcome("append/one"))))


def murderous(task: Task) -> Graded:
    """End not only this process but the worker that started it."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
    return Graded(key=task.key)


def stuck(task: Task) -> Graded:
    """Never come back from one source, and leave the mark that it names; the others cannot be graded."""
    if b"stuck" in task.source.content:
        Path(task.source.content.decode().split()[1]).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return Graded(key=task.key, failure="not today")


def user(task: Task) -> Graded:
    """Say who a submission would be. Its process keeps that user."""
    time.sleep(0.5)
    return Graded(key=task.key, failure=f"{user_of_this_process()}")


def pretended(task: Task) -> Graded:
    """Grade with another pipeline: a source is words, `HOW FILE [TIMES]`.

    It writes a byte into the file each time, and breaks the first times in that way.
    """

    def broken(*_: object, **__: object) -> Record:
        how, *rest = task.source.content.decode().split()
        if how == "right":
            return record_of(outcome("append/one"))
        log, times = Path(rest[0]), int(rest[1]) if rest[1:] else 99
        with log.open("a", encoding="utf-8") as file:
            file.write("x")
        if tries(log) > times:
            return record_of(outcome("append/one"))
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stuck":
            os.kill(os.getpid(), signal.SIGSTOP)
        raise _TROUBLE[how]

    with patch.object(pipeline, "grade", broken):
        return counter_lab.grade(task)


def tries(log: Path) -> int:
    """Return how many times something was graded."""
    return log.stat().st_size if log.exists() else 0
