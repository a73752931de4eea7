"""Grade the submissions of a class on any executor; the processes of this machine are one of them.

A task contains the submission itself and the fingerprint that it was planned for. So a worker needs no files except a
clone of the grader, and refuses to grade with a different one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from grader import pipeline
from grader.assignment.lab import Settings
from grader.assignment.source import Source
from grader.classroom.fingerprint import differences, grading_plan
from grader.classroom.stored_result import StoredRecord
from grader.classroom.worker_pool import Late, Pool
from grader.core.errors import GraderError, InputError, OtherGrader, Unprotected
from grader.core.picture import Drawing
from grader.system.budget import MOST_SECONDS
from grader.system.resources import MACHINE_ERRORS
from grader.system.sandbox import LEVELS, require

Workers = Callable[[], AbstractContextManager[Executor]]
"""Makes an executor, and another one when that broke. Leaving it by an exception ends what is in progress."""

KILLED = "the process that graded it was killed, perhaps for want of memory"
"""Why a submission has no record when its process died."""

LATE = f"its grading did not end within {MOST_SECONDS / 60:.0f} minutes and was killed"
"""Why a submission has no record when its process did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A submission to grade."""

    key: str
    source: Source
    settings: Settings
    fingerprint: str
    made_of: Mapping[str, str]
    """As in `GradingPlan`: a worker with another fingerprint can say what differs."""
    level: str = LEVELS[0]
    """The least level of protection of the machine that grades it, one of `LEVELS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """The result of a task: the record to store, or why the grader could not do its work."""

    key: str
    kept: StoredRecord | None = None
    failure: str = ""
    broke: bool = False
    """Whether this grading broke; a failure of the whole machine or of the store is none of this submission."""


def grade(task: Task) -> Graded:
    """Grade a submission in this process; a failure of the grader is returned, not raised: the other tasks go on.

    Raises `OtherGrader` and `Unprotected` where no task may be graded.
    """
    try:
        return Graded(key=task.key, kept=_stored_record(task))
    except (OtherGrader, Unprotected):
        raise
    except GraderError as error:
        return Graded(key=task.key, failure=str(error) or type(error).__name__, broke=not error.of_machine)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the others
        of_machine = isinstance(error, OSError) and error.errno in MACHINE_ERRORS
        return Graded(key=task.key, failure=f"{type(error).__name__}: {error}", broke=not of_machine)


def _stored_record(task: Task) -> StoredRecord:
    try:
        plan = grading_plan(task.settings)
    except InputError as error:
        raise OtherGrader(f"not all here is what the batch began with: {error}") from error
    if plan.fingerprint != task.fingerprint:
        what = differences(plan.made_of, task.made_of)
        raise OtherGrader(f"not all here is what the batch began with: {what}. With the same, start it again")
    require(task.level)
    record = pipeline.grade(
        Path(task.source.name),
        plan.lab,
        plan.cases,
        task.settings,
        hidden=plan.hidden,
        draw=Drawing.ALL,  # the store's records are for every format
        source=task.source,
    )
    return StoredRecord.of(task.key, record)


@contextlib.contextmanager
def processes(jobs: int, most_seconds: float = MOST_SECONDS) -> Iterator[Executor]:
    """Yield an executor with `jobs` processes of this machine and `most_seconds` for each task.

    An exception inside ends the processes at once, and so does the death of this process.
    """
    pool = Pool(jobs, most_seconds)
    try:
        yield pool
    except BaseException:
        pool.close(at_once=True)
        raise
    pool.close(at_once=False)


def outcome(future: Future[Graded], task: Task) -> Graded:
    """Return the result of a task, also when its process was killed. Raises what `grade` does."""
    try:
        return future.result()
    except BrokenExecutor:
        return Graded(key=task.key, failure=KILLED, broke=True)
    except Late:
        return Graded(key=task.key, failure=LATE, broke=True)
