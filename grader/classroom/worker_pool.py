"""A pool of processes on this machine, each making one call at a time; no call can prevent the pool from ending.

The pool of Python's own library breaks as a whole when one process dies, does not say which call killed it, has no
deadline for a call, and at its end waits for as long as a call takes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import Empty, SimpleQueue
from typing import Any

from grader.system.process_tree import INTERRUPTS, delayed_interrupts, end_tree
from grader.system.sandbox import sweep

MOST_SECONDS_TO_END = 20.0
"""The most seconds in which a worker process ends after the process that it works for is gone."""

_LOOK_SECONDS = 1.0
_END_SECONDS = 1.5
"""The time for all calls together to clean up; then the pool does it for them, so that the end takes at most 3 s."""

_Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Died(BrokenExecutor):
    """The process of a call was killed, but not by the pool."""


class Late(Exception):
    """A call exceeded its time; its process was killed."""


class Pool(Executor):
    """An executor with `count` processes, each started for its first call, and again after it was killed."""

    def __init__(self, count: int, most_seconds: float) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], _Call] | None] = SimpleQueue()
        self._places = [_Place(most_seconds) for _ in range(count)]
        self._ended = threading.Event()
        with delayed_interrupts():  # signals are for the main thread
            self._threads = [threading.Thread(target=self._serve, args=(place,), daemon=True) for place in self._places]
            for thread in [*self._threads, threading.Thread(target=self._watch, daemon=True)]:
                thread.start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # type: ignore[override]
        """Make the call in a process. The future raises what the call raises, `Died`, or `Late`."""
        future: Future[Any] = Future()
        self._calls.put((future, (function, arguments)))
        return future

    def close(self, *, at_once: bool) -> None:
        """End all processes: when their calls are done, or `at_once`, whatever they are doing."""
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

    def _serve(self, place: _Place) -> None:
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


class _Place:
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
            connection.send(call)
            returned, value = connection.recv()
        except (EOFError, OSError):  # also after half an answer
            self.end(time.monotonic())
            raise (Late if self._late else Died) from None
        finally:
            with self._lock:
                self._left = None
        if returned:
            return value
        raise value

    def _started(self) -> Connection[Any, Any]:
        if self._closed:
            raise Died
        if self._connection is not None and self._process is not None and self._process.is_alive():
            return self._connection
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        with _starting, theirs, delayed_interrupts():
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
                self._connection.send(None)

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
    calls: SimpleQueue[_Call | None] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, calls), daemon=True).start()  # started with interrupts delayed
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    try:
        _make_calls(connection, calls)
    except KeyboardInterrupt:
        os._exit(130)


def _make_calls(connection: Connection[Any, Any], calls: SimpleQueue[_Call | None]) -> None:
    while not _state.ends:
        _state.idle = True
        call = calls.get()
        _state.idle = False
        if call is None:
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send(_answer(call))


def _answer(call: _Call) -> tuple[bool, Any]:
    """Return (True, what the call returned) or (False, what it raised)."""
    function, arguments = call
    try:
        _state.busy = True
        return True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - it is raised where the call was asked for
        return False, error
    finally:
        _state.busy = False


def _read(connection: Connection[Any, Any], calls: SimpleQueue[_Call | None]) -> None:
    """Read calls in a thread of its own, because the end of the pool's process must be seen during a call too."""
    try:
        while True:
            try:
                calls.put(connection.recv())
            except (EOFError, OSError):
                raise
            except Exception as error:  # noqa: BLE001 - what we are to do cannot even be read
                calls.put((_fail, (error,)))
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(MOST_SECONDS_TO_END)  # in case the interrupt came where it was ignored
        os._exit(130)


def _fail(error: Exception) -> None:
    raise error


def _stop(*_: object) -> None:
    """Handle SIGTERM once only, so that it interrupts neither the clean-up after a call nor the sending of a result."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _state.ends = True
    if _state.busy:
        raise KeyboardInterrupt
    if _state.idle:
        os._exit(130)
