"""Where the submissions of a class are graded: on any executor, of which processes of this machine are one.

A task carries the submission itself and says what it was planned for, so a worker needs no files but a clone of the
grader, and refuses to grade with another one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from grader import pipeline
from grader.asked import Settings, asked, differences
from grader.collect import Source
from grader.errors import InputError, OtherGrader, Unprotected
from grader.migrations import packed
from grader.record import to_json
from grader.result import Kept
from grader.sandbox import LEVELS, require

__all__ = ["KILLED", "MOST_SECONDS_TO_END", "Graded", "Task", "Workers", "deaf", "grade", "processes"]

Workers = Callable[[], AbstractContextManager[Executor]]
"""Makes an executor, and another one when that broke. Its end by an exception ends what is under way."""

KILLED = "the process that graded it was killed, perhaps for want of memory"
"""The trouble with a submission whose process died twice."""

MOST_SECONDS_TO_END = 20.0
"""Of a process that grades, once nobody waits for it."""

_SECONDS_TO_SEND = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A submission to be graded."""

    key: str
    source: Source
    settings: Settings
    fingerprint: str
    made_of: Mapping[str, str]
    """As in `Asked`: whoever has another fingerprint can say why."""
    level: str = LEVELS[0]
    """What must stand between it and the machine where it is graded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """What came of a task: what to keep, or why the grader could not do its work."""

    key: str
    kept: Kept | None = None
    trouble: str = ""


@dataclass(slots=True)
class _State:
    ends_alone: bool = False
    """Is this a process that only grades, and ends when it is interrupted?"""
    grading: bool = False
    ends: bool = False
    """Is it to end as soon as it may?"""


_state = _State()


def grade(task: Task) -> Graded:
    """Grade it, here and now. What goes wrong on our side is told, never raised: the others go on.

    Raises `OtherGrader` and `Unprotected` where none of them may be graded.
    """
    if _state.ends:
        os._exit(130)  # it was not at work when it was told
    try:
        _state.grading = True
        return Graded(key=task.key, kept=_kept(task))
    except KeyboardInterrupt:
        if _state.ends_alone:
            os._exit(130)  # the pool would give it the next task
        raise
    except (OtherGrader, Unprotected):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the others
        return Graded(key=task.key, trouble=str(error) or type(error).__name__)
    finally:
        _state.grading = False


def _kept(task: Task) -> Kept:
    try:
        chosen = asked(task.settings)
    except InputError as error:
        raise OtherGrader(f"not all here is what the batch began with: {error}") from error
    if chosen.fingerprint != task.fingerprint:
        what = differences(chosen.made_of, task.made_of)
        raise OtherGrader(f"not all here is what the batch began with: {what}. With the same, start it again")
    require(task.level)
    record = pipeline.grade(
        Path(task.source.name),
        chosen.lab,
        chosen.cases,
        seed=chosen.seed,
        valgrind=task.settings.valgrind,
        advise=task.settings.advise,
        instructions=task.settings.instructions,
        draw=True,  # the store's records are for every format
        allowed=task.settings.allowed,
        hidden=chosen.hidden,
        source=task.source,
    )
    assert record.score is not None
    return Kept(
        key=task.key,
        packed=packed(to_json(record, one_line=True)),
        verdict=record.verdict,
        score=record.score,
        max_score=record.max_score,
        rule=record.diagnosis.rule if record.diagnosis is not None else None,
    )


@contextlib.contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """That many processes of this machine. An exception inside ends them at once, and so does our own death."""
    context = get_context("spawn")
    ends, ours = context.Pipe(duplex=False)
    with ours, ends:
        pool = ProcessPoolExecutor(jobs, context, initializer=_prepare, initargs=(ends,))
        try:
            with deaf():
                for _ in range(jobs):  # all of them start in here
                    pool.submit(_ready)
            yield pool
        except BaseException:
            ours.close()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Processes that start in here do not hear Ctrl-C: it is for the one that leads."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ready() -> None:
    """The first task of a worker."""


def _prepare(ends: Connection) -> None:
    """In a worker, before its first task: it ends when the other end of the pipe is gone."""
    _state.ends_alone = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    threading.Thread(target=_watch, args=(ends,), daemon=True).start()


def _watch(ends: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        ends.recv()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(MOST_SECONDS_TO_END)  # should the interrupt have come where nobody minds it
    os._exit(130)


def _stop(*_: object) -> None:
    """Once only: what a grading leaves is cleaned up in peace, and a record is sent as a whole or not at all.

    Of half a record its reader would wait for the rest, without end.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _state.ends = True
    if _state.grading:
        raise KeyboardInterrupt
    soon = threading.Timer(_SECONDS_TO_SEND, os._exit, (130,))
    soon.daemon = True
    soon.start()
