"""Processes of this machine that work for us, one call at a time each. No call can keep us from ending.

The pool of Python's own library breaks as a whole when one process dies, does not say which call killed it, gives no
call a deadline, and waits at its end for as long as a call likes to take.
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

from grader.system.interrupts import INTERRUPTS, delayed_interrupts
from grader.system.orphans import end_tree
from grader.system.sandbox import sweep

__all__ = ["MOST_SECONDS_TO_END", "Died", "Late", "Pool"]

MOST_SECONDS_TO_END = 20.0
"""Of a process that works, once the one that it works for is gone."""

_LOOK_SECONDS = 1.0
_END_SECONDS = 1.5
"""For all calls together to clean up after themselves; then it is done for them, so that all is over within 3 s."""

_Call = tuple[Callable[..., Any], tuple[Any, ...]]


class Died(BrokenExecutor):
    """The process of a call was killed by somebody else."""


class Late(Exception):
    """A call took longer than it may; its process was killed."""


class Pool(Executor):
    """So many processes, each started for its first call, and anew after it was killed."""

    def __init__(self, count: int, most_seconds: float) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], _Call] | None] = SimpleQueue()
        self._places = [_Place(most_seconds) for _ in range(count)]
        self._ended = threading.Event()
        with delayed_interrupts():  # signals are for the main thread
            self._threads = [threading.Thread(target=self._serve, args=(one,), daemon=True) for one in self._places]
            for thread in [*self._threads, threading.Thread(target=self._watch, daemon=True)]:
                thread.start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # type: ignore[override]
        """Have it called in a process. The future raises what it raises, `Died`, or `Late`."""
        future: Future[Any] = Future()
        self._calls.put((future, (function, arguments)))
        return future

    def close(self, *, at_once: bool) -> None:
        """End all processes: when their calls are done, or at once, whatever they are at."""
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
        """Only time that we see pass counts: not that in which all of us were stopped, by Ctrl-Z for instance."""
        before = time.monotonic()
        while not self._ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for place in self._places:
                place.wait_less(min(now - before, 2 * _LOOK_SECONDS))
            before = now


_starting = threading.Lock()
"""Two threads that start processes would bury each other's."""


class _Place:
    """Where one call is made at a time: a process of its own, as long as that lives."""

    def __init__(self, most_seconds: float) -> None:
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._process: SpawnProcess | None = None
        self._connection: Connection[Any, Any] | None = None
        self._left: float | None = None
        """How long the call may still take; None: nothing is called."""
        self._late = False
        self._closed = False

    def do(self, call: _Call) -> Any:
        """Make the call there, and return what it returns."""
        with self._lock:
            connection = self._started()
            self._left, self._late = self._most_seconds, False
        try:
            connection.send(call)
            returned, value = connection.recv()
        except (EOFError, OSError):  # also of half an answer
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
        """So much of the call's time is over. When all of it is, the process ends, and so does whoever waits for it."""
        with self._lock:
            if self._left is None:
                return
            self._left -= seconds
            self._late = self._left <= 0
            if self._late and self._process is not None:
                _kill(self._process)

    def ask_to_end(self, *, at_once: bool) -> None:
        """It ends by itself, if it can: when it has cleaned up, or, with nothing to do, when it is told so."""
        with self._lock, contextlib.suppress(OSError):
            self._closed = True
            if self._process is None or self._connection is None:
                return
            if at_once:
                self._process.terminate()
            else:
                self._connection.send(None)

    def end(self, until: float) -> None:
        """Wait for it until then, and kill it."""
        with self._lock:
            process, connection, self._process, self._connection = self._process, self._connection, None, None
        if process is not None:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode != 0:
                _kill(process)
        if connection is not None:
            connection.close()


def _kill(process: SpawnProcess) -> None:
    """With all that it has started, and its folders."""
    if process.pid is not None:
        if process.exitcode is None:
            end_tree(process.pid)
            process.join()
        sweep()


class _State:
    """Of a process that works for a pool."""

    busy = False
    """Is it within a call?"""
    idle = False
    ends = False
    """Is it to end as soon as it may?"""


_state = _State()


def _work(connection: Connection[Any, Any]) -> None:
    """In a process: make calls, until there are no more."""
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
    """Did it return, and what? Or what did it raise?"""
    function, arguments = call
    try:
        _state.busy = True
        return True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - it is raised where the call was asked for
        return False, error
    finally:
        _state.busy = False


def _read(connection: Connection[Any, Any], calls: SimpleQueue[_Call | None]) -> None:
    """Beside the calls, for the end of whom we work for must be seen during one, too."""
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
        time.sleep(MOST_SECONDS_TO_END)  # should the interrupt have come where nobody minds it
        os._exit(130)


def _fail(error: Exception) -> None:
    raise error


def _stop(*_: object) -> None:
    """Once only: what a call leaves is cleaned up in peace, and what it returned is sent as a whole."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _state.ends = True
    if _state.busy:
        raise KeyboardInterrupt
    if _state.idle:
        os._exit(130)
