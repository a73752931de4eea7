"""Grade the submissions of a class on any executor; a pool of processes on this machine is one of them.

A task contains the submission itself and the fingerprint that it was planned for. So a worker needs no files except a
clone of the grader, and refuses to grade with a different one.

No call can prevent the pool from ending. The pool of Python's own library breaks as a whole when one process dies, does
not say which call killed it, has no deadline for a call, and at its end waits for as long as a call takes. `pebble`'s
pool (5.2) has deadlines, but needs 3 s for each process that ignores SIGTERM, one after the other, so that two of them
delay Ctrl-C by 6 s; it leaves the programs that a killed process had started, lets busy processes outlive their parent,
counts the time of a Ctrl-Z, and breaks as a whole when a process dies that has no call.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from grader import pipeline
from grader.assignment.lab import Settings
from grader.assignment.source import Source
from grader.classroom.fingerprint import differences, grading_plan
from grader.classroom.stored_result import StoredRecord
from grader.core.errors import GraderError, InputError, OtherGrader, Unprotected
from grader.core.picture import Drawing
from grader.system.budget import MOST_SECONDS
from grader.system.process_tree import INTERRUPTS, delayed_interrupts, end_tree
from grader.system.resources import MACHINE_ERRORS
from grader.system.sandbox import LEVELS, require, sweep

Workers = Callable[[], AbstractContextManager[Executor]]
"""Makes an executor, and another one when that broke. Leaving it by an exception ends what is in progress."""

KILLED = "the process that graded it was killed, perhaps because memory ran out"
"""Why a submission has no record when its process died."""

LATE = f"its grading did not finish within {MOST_SECONDS / 60:.0f} minutes and was killed"
"""Why a submission has no record when its process did not end in time."""

MOST_SECONDS_TO_END = 20.0
"""The most seconds in which a worker process ends after the process that it works for is gone."""

_LOOK_SECONDS = 1.0
_END_SECONDS = 1.5
"""The time for all calls together to clean up; then the pool does it for them, so that the end takes at most 3 s."""
_Call = tuple[Callable[..., Any], tuple[Any, ...]]


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
    stored: StoredRecord | None = None
    failure: str = ""
    broke: bool = False
    """Whether this grading broke; a failure of the whole machine or of the store is none of this submission."""


def grade(task: Task) -> Graded:
    """Grade a submission in this process; a failure of the grader is returned, not raised: the other tasks go on.

    Raises `OtherGrader` and `Unprotected` where no task may be graded.
    """
    try:
        return Graded(key=task.key, stored=_stored_record(task))
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
        raise OtherGrader(f"not everything here is what the batch began with: {error}") from error
    if plan.fingerprint != task.fingerprint:
        what = differences(plan.made_of, task.made_of)
        raise OtherGrader(f"not everything here is what the batch began with: {what}. Start it again with the same")
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


def outcome(future: Future[Graded], task: Task) -> Graded:
    """Return the result of a task, also when its process was killed. Raises what `grade` does."""
    try:
        return future.result()
    except BrokenExecutor:
        return Graded(key=task.key, failure=KILLED, broke=True)
    except CallTimeout:
        return Graded(key=task.key, failure=LATE, broke=True)


class ProcessDied(BrokenExecutor):
    """The process of a call was killed, but not by the pool."""


class CallTimeout(Exception):
    """A call exceeded its time; its process was killed."""


class ProcessPool(Executor):
    """An executor with `count` processes, each started for its first call, and again after it was killed.

    It is used in a `with` block. An exception in the block ends the processes at once, whatever they are doing, and so
    does the death of this process; otherwise they end when their calls are done.
    """

    def __init__(self, count: int, most_seconds: float = MOST_SECONDS) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], _Call] | None] = SimpleQueue()
        self._places = [_WorkerProcess(most_seconds) for _ in range(count)]
        self._ended = threading.Event()
        with delayed_interrupts():  # signals are for the main thread
            self._threads = [threading.Thread(target=self._serve, args=(place,), daemon=True) for place in self._places]
            for thread in [*self._threads, threading.Thread(target=self._watch, daemon=True)]:
                thread.start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # type: ignore[override]
        """Make the call in a process. The future raises what the call raises, `ProcessDied`, or `CallTimeout`."""
        future: Future[Any] = Future()
        self._calls.put((future, (function, arguments)))
        return future

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        """End all processes: at once after an exception, otherwise when their calls are done."""
        at_once = kind is not None
        with delayed_interrupts():
            with contextlib.suppress(Empty):
                while at_once and (left := self._calls.get_nowait()) is not None:
                    left[0].cancel()
            for _ in self._places:
                self._calls.put(None)
            if not at_once:
                for thread in self._threads:
                    thread.join()
            self._ended.set()
            for place in self._places:
                place.ask_to_end(at_once=at_once)
            until = time.monotonic() + _END_SECONDS
            for place in self._places:
                place.end(until)
            for thread in self._threads:
                thread.join()

    def _serve(self, place: _WorkerProcess) -> None:
        while (given := self._calls.get()) is not None:
            future, call = given
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(place.do(call))
                except BaseException as error:  # noqa: BLE001 - whoever waits for it has it
                    future.set_exception(error)

    def _watch(self) -> None:
        """Subtract passed time from all calls, but not time in which all processes were stopped, such as by Ctrl-Z."""
        before = time.monotonic()
        while not self._ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for place in self._places:
                place.wait_less(min(now - before, 2 * _LOOK_SECONDS))
            before = now


_starting = threading.Lock()
"""Held while a process starts: two threads that start processes at once would reap each other's."""


class _WorkerProcess:
    """A place of the pool: makes one call at a time in a process of its own, which is started again when it died."""

    def __init__(self, most_seconds: float) -> None:
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._process: SpawnProcess | None = None
        self._connection: Connection[Any, Any] | None = None
        self._left: float | None = None
        """The seconds that the call may still take; None: no call is in progress."""
        self._late = False
        self._closed = False

    def do(self, call: _Call) -> Any:
        """Make the call in the process, and return what it returns."""
        with self._lock:
            connection = self._started()
            self._left, self._late = self._most_seconds, False
        try:
            connection.send_bytes(pickle.dumps(call))
            returned, value = connection.recv()
        except (EOFError, OSError):  # also after half an answer
            self.end(time.monotonic())
            raise (CallTimeout if self._late else ProcessDied) from None
        finally:
            with self._lock:
                self._left = None
        if returned:
            return value
        raise value

    def _started(self) -> Connection[Any, Any]:
        if self._closed:
            raise ProcessDied
        if self._connection is not None and self._process is not None and self._process.is_alive():
            return self._connection
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        with _starting, theirs, delayed_interrupts():
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)  # which the tracker allows when it was started
            self._process = context.Process(target=_work, args=(theirs,), daemon=True)
            self._process.start()
        return self._connection

    def wait_less(self, seconds: float) -> None:
        """Subtract these seconds from the call's time; when none is left, kill the process, so that `do` ends too."""
        with self._lock:
            if self._left is None:
                return
            self._left -= seconds
            self._late = self._left <= 0
            if self._late and self._process is not None:
                _kill(self._process)

    def ask_to_end(self, *, at_once: bool) -> None:
        """Ask the process to end by itself: `at_once` after it has cleaned up, otherwise when it has nothing to do."""
        with self._lock, contextlib.suppress(OSError):
            self._closed = True
            if self._process is None or self._connection is None:
                return
            if at_once:
                self._process.terminate()
            else:
                self._connection.send_bytes(b"")

    def end(self, until: float) -> None:
        """Wait for the process until that time (of `time.monotonic`), and kill it if it did not end normally."""
        with self._lock:
            process, connection, self._process, self._connection = self._process, self._connection, None, None
        if process is not None:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode != 0:
                _kill(process)
        if connection is not None:
            connection.close()


def _kill(process: SpawnProcess) -> None:
    """Kill the process and everything that it has started, and remove its folders."""
    if process.pid is not None:
        if process.exitcode is None:
            end_tree(process.pid)
            process.join()
        sweep()


class _State:
    """The state of a process that works for a pool."""

    busy = False
    """Whether a call is in progress."""
    idle = False
    ends = False
    """Whether it must end as soon as it may."""


_state = _State()


def _work(connection: Connection[Any, Any]) -> None:
    """Make calls in a worker process, until there are no more."""
    for number in INTERRUPTS - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, calls), daemon=True).start()  # started with interrupts delayed
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    try:
        _make_calls(connection, calls)
    except KeyboardInterrupt:
        os._exit(130)


def _make_calls(connection: Connection[Any, Any], calls: SimpleQueue[bytes]) -> None:
    while not _state.ends:
        _state.idle = True
        call = calls.get()
        _state.idle = False
        if not call:
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send(_answer(call))


def _answer(call: bytes) -> tuple[bool, Any]:
    """Return (True, what the call returned) or (False, what it raised, or why it cannot be read)."""
    try:
        _state.busy = True
        function, arguments = pickle.loads(call)  # noqa: S301 - from the process that started this one
        return True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - it is raised where the call was asked for
        return False, error
    finally:
        _state.busy = False


def _read(connection: Connection[Any, Any], calls: SimpleQueue[bytes]) -> None:
    """Read calls in a thread of its own, because the end of the pool's process must be seen during a call too."""
    try:
        while True:
            calls.put(connection.recv_bytes())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(MOST_SECONDS_TO_END)  # in case the interrupt came where it was ignored
        os._exit(130)


def _stop(*_: object) -> None:
    """Handle SIGTERM once only, so that it interrupts neither the clean-up after a call nor the sending of a result."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _state.ends = True
    if _state.busy:
        raise KeyboardInterrupt
    if _state.idle:
        os._exit(130)
