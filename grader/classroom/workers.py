"""Grade the submissions of a class on any executor. A pool of processes on this machine is one of them.

A grading plan is an assignment with its cases and options. Its fingerprint covers everything that a record depends on
except the submission: two gradings with the same fingerprint give the same result, so a submission that was graded once
need not be graded again.

A task contains the submission itself and the fingerprint that it was planned for. So a worker needs no files except a
clone of the grader, and refuses to grade with another fingerprint.

No call can prevent the pool from ending. The pool of Python's own library breaks as a whole when one process dies, does
not say which call killed it, has no deadline for a call, and at its end waits for as long as a call takes. `pebble`'s
pool (5.2) has deadlines, but needs 3 s for each process that ignores SIGTERM, one after the other, so that two of them
delay Ctrl-C by 6 s. It does not end the programs that a killed process had started, lets busy processes outlive their
parent, counts time in which Ctrl-Z stopped it, and breaks as a whole when an idle process dies.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import platform
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.assignment.lab import Lab, Settings
from grader.assignment.rubric import RUBRIC_FILE
from grader.assignment.source import Source
from grader.classroom.stored_result import StoredRecord
from grader.core.case import Case
from grader.core.errors import GraderError, InputError, OtherGrader, Unprotected
from grader.core.picture import Drawing
from grader.judge.score import most_points
from grader.labs import open_lab
from grader.system import resources
from grader.system.budget import MOST_SECONDS
from grader.system.process_tree import INTERRUPTS, delayed_interrupts, end_tree
from grader.system.resources import MACHINE_ERRORS
from grader.system.sandbox import LEVELS, require, sweep

_ROOT = Path(__file__).parents[2]
_CODE = ("reference/**/*.py", "reference/**/*.h", "grader/**/*.py", "grader/**/*.[chS]", "grader/**/*.jinja")
_NO_MATTER = frozenset({"tests", "cli", "report", "bench", "bundles"})
"""No record depends on these packages."""
_HASHED = ("grader", "cases")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingPlan:
    """A loaded assignment with its cases."""

    settings: Settings
    lab: Lab
    cases: tuple[Case, ...]
    hidden: Mapping[str, int] | None = None
    """If hidden cases are left out: their weight by rule. None if no hidden case is left out."""
    made_of: Mapping[str, str]
    """What records depend on in addition to settings and submission, by name: grader code, cases, tools, machine."""
    fingerprint: str
    judged: str
    """The fingerprint without what `rescored` (grader.result.assemble) may change: points, titles and places of rules,
    and what students see, which may depend on the time. A record can be rescored for a plan with an equal value."""

    @property
    def max_score(self) -> int:
        """The points of a right program. A rule has no points if no case was chosen for it."""
        return most_points(self.lab.rubric, self.cases, self.hidden)

    def key(self, source: str) -> str:
        """Return the key of the record of a source (see `source_id`)."""
        return _digest([self.fingerprint, source])

    def require_tools(self) -> None:
        """Raise `ToolMissing` when a tool that this plan needs is not installed on this machine."""
        resources.require(*self.lab.runtime.tools(self.settings))


@cache
def grading_plan(settings: Settings) -> GradingPlan:
    """Load the plan. Raises `UsageError` when no case matches, `CaseFileError`, `RubricError`."""
    lab = open_lab(settings.lab)
    seed = lab.rubric.seed if settings.seed is None else settings.seed
    selection = select_cases(lab, seed=seed, pattern=settings.case, public_only=settings.public_only)
    settings = replace(settings, public_only=selection.hidden is not None)
    of_cases = repr(selection.hidden), *_files(lab, selection.cases)
    made_of = {
        "grader": grader_hash(),
        "cases": _digest([*of_cases, (lab.cases / RUBRIC_FILE).read_bytes()]),
        **{tool.short_name: resources.version(tool.name) for tool in lab.runtime.tools(settings)},
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }
    return GradingPlan(
        settings=settings,
        lab=lab,
        cases=selection.cases,
        hidden=selection.hidden,
        made_of=made_of,
        fingerprint=_fingerprint(settings, made_of | {"feedback": lab.rubric.feedback_at(datetime.now(UTC))}),
        judged=_fingerprint(settings, made_of | {"cases": _digest([*of_cases, repr(lab.rubric.judging)])}),
    )


def differences(here: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Return in words how two values of `GradingPlan.made_of` differ."""
    words = []
    for name in sorted(here.keys() | wanted.keys()):
        actual, expected = here.get(name, ""), wanted.get(name, "")
        if actual != expected:
            words.append(f"other {name}" if name in _HASHED else f"{name} '{actual or 'missing'}', not '{expected}'")
    return "; ".join(words)


@cache
def grader_hash() -> str:
    """Return a hash of the grader's code, as far as records depend on it."""
    return _digest(part for path in code() for part in (str(path.relative_to(_ROOT)), path.read_bytes()))


def code() -> list[Path]:
    """Return the files of the grader's code on which records depend."""
    paths = sorted({path for pattern in _CODE for path in _ROOT.glob(pattern)})
    return [path for path in paths if not _NO_MATTER & set(path.relative_to(_ROOT).parts)]


def source_id(source: Source) -> str:
    """Return a hash of what was submitted: a source that has only its `meant_headers`, or why there is no source."""
    failure = source.finding.message if source.finding is not None else ""
    return _digest([source.content, failure, *(part for header in source.own_headers.items() for part in header)])


def meant_headers(source: Source) -> Mapping[str, bytes]:
    """Return those of the student's headers whose names occur in the source, or in another header that is returned."""
    meant: dict[str, bytes] = {}
    texts = [source.content]
    while texts:
        text = texts.pop()
        for name, content in source.own_headers.items():
            if name not in meant and re.search(rb"\b" + re.escape(name.encode(errors="surrogateescape")), text):
                meant[name] = content
                texts.append(content)
    return dict(sorted(meant.items()))


def _files(lab: Lab, cases: Iterable[Case]) -> Iterator[str | bytes]:
    """Yield path and content of the chosen cases and of the TOML files in the lab's case folder, except the rubric."""
    for path in [*sorted(lab.cases.glob("*.toml")), *(case.path for case in cases)]:
        if path != lab.cases / RUBRIC_FILE:
            yield str(path.relative_to(lab.cases))
            yield path.read_bytes()


def _fingerprint(settings: Settings, made_of: Mapping[str, str]) -> str:
    return _digest([repr(asdict(settings)), *(part for pair in made_of.items() for part in pair)])


def _digest(parts: Iterable[str | bytes]) -> str:
    """Return a hash of the parts, which also depends on where each part ends."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


Workers = Callable[[], AbstractContextManager[Executor]]
"""Makes an executor. If an exception leaves its `with` block, the tasks in progress are ended."""

KILLED = "the process that graded it was killed, perhaps because memory ran out"
LATE = f"its grading did not finish within {MOST_SECONDS / 60:.0f} minutes and was killed"
MOST_SECONDS_TO_END = 20.0
"""A worker process ends at most this many seconds after the process that it works for."""

_LOOK_SECONDS = 1.0
_END_SECONDS = 1.5
"""The time in which all calls must clean up. After this the pool cleans up for them, so it ends within 3 s."""
_Call = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A submission to grade."""

    key: str
    source: Source
    settings: Settings
    fingerprint: str
    made_of: Mapping[str, str]
    """See `GradingPlan.made_of`: a worker with another fingerprint reports what differs."""
    level: str = LEVELS[0]
    """The least level of protection that the grading machine must have, one of `LEVELS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """The result of a task: the record to store, or why the grader could not do its work."""

    key: str
    stored: StoredRecord | None = None
    failure: str = ""
    broke: bool = False
    """Whether grading this submission failed. False for a failure of the whole machine or of the store."""


def grade(task: Task) -> Graded:
    """Grade a submission in this process. A failure of the grader is returned, not raised, so that other tasks go on.

    Raises `OtherGrader` and `Unprotected` if this machine must not grade any task.
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
        what = differences(plan.made_of, task.made_of) or "what students see of a record, by the rubric and the date"
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
    """Return the result of a task, even if its process was killed. Raises what `grade` raises."""
    try:
        return future.result()
    except BrokenExecutor:
        return Graded(key=task.key, failure=KILLED, broke=True)
    except CallTimeout:
        return Graded(key=task.key, failure=LATE, broke=True)


class ProcessDied(BrokenExecutor):
    """The process of a call was killed, but not by the pool."""


class CallTimeout(Exception):
    """A call exceeded its time, so the pool killed its process."""


class ProcessPool(Executor):
    """An executor with `count` processes. Each is started for its first call, and again after it was killed.

    Use it in a `with` block. The processes end when their calls are done. They end at once, even during a call, when an
    exception leaves the block or this process dies.
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
        """Make the call in a process. The future raises the exception of the call, `ProcessDied`, or `CallTimeout`."""
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
                except BaseException as error:  # noqa: BLE001 - the future raises it when its result is requested
                    future.set_exception(error)

    def _watch(self) -> None:
        """Subtract the elapsed time from the time left to each call, except time in which Ctrl-Z stopped the batch."""
        before = time.monotonic()
        while not self._ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            for place in self._places:
                place.wait_less(min(now - before, 2 * _LOOK_SECONDS))
            before = now


_starting = threading.Lock()
"""Held while a process starts: two threads that start processes at the same time would reap each other's."""


class _WorkerProcess:
    """One process of the pool. It makes one call at a time, and is started again after it died."""

    def __init__(self, most_seconds: float) -> None:
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._process: SpawnProcess | None = None
        self._connection: Connection[Any, Any] | None = None
        self._left: float | None = None
        """The seconds that the call may still take; None if no call is in progress."""
        self._late = False
        self._closed = False

    def do(self, call: _Call) -> Any:
        """Make the call in the process, and return its value."""
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
            signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)  # starting the tracker unblocks them
            self._process = context.Process(target=_work, args=(theirs,), daemon=True)
            self._process.start()
        return self._connection

    def wait_less(self, seconds: float) -> None:
        """Subtract these seconds from the call's time. If no time is left, kill the process, which also ends `do`."""
        with self._lock:
            if self._left is None:
                return
            self._left -= seconds
            self._late = self._left <= 0
            if self._late and self._process is not None:
                _kill(self._process)

    def ask_to_end(self, *, at_once: bool) -> None:
        """Ask the process to end: `at_once` as soon as it has cleaned up, otherwise when it has no call."""
        with self._lock, contextlib.suppress(OSError):
            self._closed = True
            if self._process is None or self._connection is None:
                return
            if at_once:
                self._process.terminate()
            else:
                self._connection.send_bytes(b"")

    def end(self, until: float) -> None:
        """Wait for the process until a time of `time.monotonic`, and kill it if it did not end normally."""
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
    """Whether the process must end, at once or after its present call."""


_state = _State()


def _work(connection: Connection[Any, Any]) -> None:
    """Make calls in a worker process, until the pool sends no more calls."""
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
    """Return (True, the value of the call), or (False, the exception that the call or reading it raised)."""
    try:
        _state.busy = True
        function, arguments = pickle.loads(call)  # noqa: S301 - from the process that started this one
        return True, function(*arguments)
    except Exception as error:  # noqa: BLE001 - it is raised where the call was asked for
        return False, error
    finally:
        _state.busy = False


def _read(connection: Connection[Any, Any], calls: SimpleQueue[bytes]) -> None:
    """Read calls in a separate thread, so that the end of the pool's process is noticed during a call too."""
    try:
        while True:
            calls.put(connection.recv_bytes())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(MOST_SECONDS_TO_END)  # in case the interrupt came where it was ignored
        os._exit(130)


def _stop(*_: object) -> None:
    """Handle SIGTERM only once, so that it does not interrupt the clean-up after a call or the sending of a result."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _state.ends = True
    if _state.busy:
        raise KeyboardInterrupt
    if _state.idle:
        os._exit(130)
