"""Grade a class on other machines, with an executor that uses the workers of a Dask scheduler.

A task is sent with its source and comes back as a record. Only this machine writes the store. If a worker dies, the
scheduler gives its tasks to another worker. On a worker each thread grades in a separate process, which has a user of
its own (grader.system.confine) and a main thread for signals. The process loads the code and cases as they are now, not
as they were when the worker was started, and it ends when the worker ends.

Dask's own executor waits forever if there is no worker, so `_Cluster` checks for workers. One refusal ends the batch: a
worker that refuses is always free, so it would be given the whole class.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from multiprocessing import current_process
from multiprocessing.util import Finalize
from uuid import uuid4

from distributed import Client, Future as Remote, KilledWorker, get_worker

from grader.classroom.workers import KILLED, Graded, ProcessPool, Task, outcome
from grader.core.errors import GraderError, NoWorkers

WINDOW = 512
"""The most tasks that a scheduler has at once. So up to this number of workers can be busy at once."""

_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 1.0
_END_SECONDS = 2.0
_IDLE_SECONDS = 20.0
_GOES_ON = "Finished results are kept; the same command continues from there"

Grade = Callable[[Task], Graded]
Grading = Callable[[Grade, Task], Graded]


@contextlib.contextmanager
def cluster(address: str, tell: Callable[[str], None], *, patience: float = 60.0) -> Iterator[Executor]:
    """Yield an executor on the workers of the scheduler at HOST:PORT.

    Calls `tell` when there are no workers, and raises `NoWorkers` after `patience` seconds without one.
    """
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # this module reports or raises errors itself
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False, name="grade")
    except (OSError, ValueError) as error:
        raise NoWorkers(
            f"no Dask scheduler answers at {address}: {error}\nStart one there: .venv/bin/dask scheduler"
        ) from error
    executor = _Cluster(client)
    watch = threading.Thread(target=executor.watch, args=(address, tell, patience), daemon=True)
    watch.start()

    def end() -> None:
        executor.close()
        watch.join()
        client.close()

    ending = threading.Thread(target=end, daemon=True)
    try:
        yield executor
    except BaseException:
        ending.start()
        ending.join(_END_SECONDS)  # a scheduler that does not answer must not delay the end
        raise
    ending.start()
    ending.join()


class _Cluster(Executor):
    """An executor. Dask's own executor waits forever without workers, and treats a lost scheduler like a Ctrl-C."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._taking = threading.Lock()
        """Held while a result is requested: a client that is closed during a request may never answer."""
        self._under_way: dict[Future[Graded], Remote[Graded]] = {}
        self._ended = threading.Event()

    def submit(self, grade: Grade, task: Task, /) -> Future[Graded]:  # type: ignore[override]  # grades only
        """Let a worker grade the task."""
        future: Future[Graded] = Future()
        remote = self._client.submit(pickle.loads, pickle.dumps(_There(grade, task)), key=f"grade-{uuid4()}")
        with self._lock:
            self._under_way[future] = remote
        remote.add_done_callback(lambda done: self._take(future, done, task.key))
        return future

    def _take(self, future: Future[Graded], remote: Remote[Graded], key: str) -> None:
        with self._taking:
            if not self._ended.is_set():
                self._end(future, _result_of(remote, key))

    def _end(self, future: Future[Graded], outcome: Graded | GraderError) -> None:
        with self._lock:
            if self._under_way.pop(future, None) is None:
                return
        if isinstance(outcome, Graded):
            future.set_result(outcome)
        else:
            future.set_exception(outcome)

    def watch(self, address: str, tell: Callable[[str], None], patience: float) -> None:
        """Check for workers until the end. If none comes for `patience` seconds, fail all tasks with `NoWorkers`."""
        alone_since = None
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                there = self._client.nthreads()
            except Exception:  # noqa: BLE001, S112 - the scheduler is gone: each task reports it
                continue
            if there:
                alone_since = None
            elif alone_since is None:
                alone_since = time.monotonic()
                tell(f"no worker at {address}; waiting {patience:g} s for one: .venv/bin/dask worker {address}")
            elif time.monotonic() - alone_since > patience:
                with self._lock:
                    waiting = list(self._under_way)
                for future in waiting:
                    self._end(future, NoWorkers(f"no worker came to {address} for {patience:g} s. {_GOES_ON}"))

    def close(self) -> None:
        """Cancel the tasks in progress, so that the scheduler forgets them: nobody waits for their results."""
        self._ended.set()
        with self._lock:
            left, self._under_way = list(self._under_way.values()), {}
        if left:
            self._client.cancel(left)
        if self._taking.acquire(timeout=_CONNECT_SECONDS):  # the last request must end: Python waits for it at exit
            self._taking.release()


def _result_of(remote: Remote[Graded], key: str) -> Graded | GraderError:
    try:
        return remote.result()
    except KilledWorker:
        return Graded(key=key, failure=KILLED, broke=True)
    except GraderError as error:
        return error
    except CancelledError:
        return NoWorkers(f"the Dask scheduler is gone. {_GOES_ON}")
    except Exception as error:  # noqa: BLE001 - such as a module that the worker lacks
        what = f"a worker cannot do what it is given: {type(error).__name__}: {error}"
        return NoWorkers(f"{what}\nStart all workers with .venv/bin/dask of a clone like this one. {_GOES_ON}")


class _There:
    """A call that is pickled on this machine. A worker makes the call by unpickling it.

    Dask ends a worker that cannot unpickle a task, such as a worker without the grader. Here unpickling is the task
    itself, so only the task fails, and the scheduler needs no code of the grader.
    """

    def __init__(self, grade: Grade, task: Task) -> None:
        self._call = grade, task

    def __reduce__(self) -> tuple[Grading, tuple[Grade, Task]]:
        return _grade_there, self._call


class _Child:
    """The process in which one thread of a worker grades for one batch. It ends after some idle time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = contextlib.ExitStack()
        self._pool: Executor | None = None
        self._fingerprint = ""
        self._idle = threading.Timer(0, self._end)
        # A worker that ends waits for its child processes before Python ends them. So this finalizer ends them first.
        Finalize(self, _end_now, (self._open,), exitpriority=100)

    def grade(self, grade: Grade, task: Task) -> Graded:
        """Grade the task in a separate process, which is started if none with the task's fingerprint runs."""
        self._idle.cancel()
        with self._lock:
            try:
                return outcome(self._started(task.fingerprint).submit(grade, task), task)
            except BaseException:
                self._close()
                raise
            finally:
                self._idle = threading.Timer(_IDLE_SECONDS, self._end)
                self._idle.daemon = True
                self._idle.start()

    def _started(self, fingerprint: str) -> Executor:
        if fingerprint != self._fingerprint:
            self._close()
        if self._pool is None:
            current_process().daemon = False  # a nanny starts workers as daemons, which may start no process
            self._pool = self._open.enter_context(ProcessPool(1))
            self._fingerprint = fingerprint
        return self._pool

    def _close(self) -> None:
        self._pool = None
        self._open.close()

    def _end(self) -> None:
        with self._lock:
            self._close()


def _end_now(opened: contextlib.ExitStack) -> None:
    opened.__exit__(SystemExit, SystemExit(), None)


_children = threading.local()
"""The `_Child` of each thread of a worker."""


def _grade_there(grade: Grade, task: Task) -> Graded:
    """Grade a task on a worker. An error names the worker and its machine."""
    try:
        _children.own = getattr(_children, "own", None) or _Child()
        child: _Child = _children.own
        return child.grade(grade, task)
    except GraderError as error:
        raise type(error)(f"worker {get_worker().address} on {socket.gethostname()}: {error}") from None
