"""The processes below the grader: time and memory of a running program, and the end of all processes it leaves.

`psutil` is not used: it finds the children of a process by reading the parents of all processes of the machine. The
kernel has a list of each process's children, and it is read fifty times a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

INTERRUPTS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""The signals that ask the grader to end."""

LOOK = 0.02
"""Seconds between two measurements of a program."""

MOST_MEMORY = 256 << 20
"""The most bytes of all processes of an observed program. A correct program and the grader use about 80 MB."""

MOST_PROCESSES = 64
"""The most processes, including dead ones whose parent has not waited for them. A correct program has three."""

_PR_SET_CHILD_SUBREAPER = 36
_MOST_SECONDS = 5.0
_MOST_SECONDS_FOR_A_TREE = 1.0
_PAGE = os.sysconf("SC_PAGESIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_SLEEPS = ("S", "T", "t", "Z")
_BLOCKED = "D"
_GRACE = 0.25
"""SIGPROF asks a program for the running operation. To answer, it gets this fraction of its used time in addition."""


@contextlib.contextmanager
def delayed_interrupts() -> Iterator[None]:
    """Delay `INTERRUPTS` for this thread until the block ends. Threads and processes started in it do not get them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@cache
def adopt_orphans() -> None:
    """Make this process the parent of all orphans of the programs that it starts, so that it can end them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


os.register_at_fork(after_in_child=adopt_orphans.cache_clear)  # a forked child has to set it for itself


class Family:
    """This process's children while a program runs; it distinguishes the program's orphans from all other children.

    Everything that the grader starts is in the grader's own session, or is the leader of a session in `_running`. So a
    child in another session is an orphan, whatever it did to its session, its user and its environment. The exceptions
    are children that existed before the program: other code started them.
    """

    _running: ClassVar[set[int]] = set()
    _changing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, start: Callable[[], int], user: int | None = None) -> None:
        """Call `start`, which starts the program in a session of its own and returns its process id.

        `user` is a user id that only this program has.
        """
        self._user = user
        with self._changing:
            self._before = set(_children())
            self._program = start()
            self._running.add(self._program)

    def members(self) -> list[int]:
        """Return the program, its descendants that were not reaped, and the orphans that it left to this process."""
        left = [child for child in _children() if child != self._program and self._is_leftover(child)]
        return [pid for first in (self._program, *left) for pid in (first, *_below(first))]

    def end_leftovers(self) -> float:
        """Kill and reap what the program left, after the program itself was reaped, and return their CPU seconds.

        Each killed process may leave orphans, which then become children of this process; hence the loop.
        """
        spent = 0.0
        with self._changing:
            self._running.discard(self._program)
            deadline = time.monotonic() + _MOST_SECONDS
            while time.monotonic() < deadline:
                children = [*filter(self._is_leftover, _children())]
                if not children:
                    break
                for child in children:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(child, signal.SIGKILL)
                    with contextlib.suppress(ChildProcessError):
                        usage = os.wait4(child, 0)[2]
                        spent += usage.ru_utime + usage.ru_stime
        return spent

    def _is_leftover(self, child: int) -> bool:
        try:
            session = os.getsid(child)
            if session == self._program or (
                self._user is not None and Path(f"/proc/{child}").stat().st_uid == self._user
            ):
                return True
        except OSError:
            return False
        return session != os.getsid(0) and session not in self._running and child not in self._before


def end_tree(root: int) -> None:
    """Kill a child of this process that adopts orphans, and everything that it has started, whatever they do.

    The child is stopped first: it starts no more processes, and keeps the orphans below it until they are dead.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(root, signal.SIGSTOP)
        deadline = time.monotonic() + _MOST_SECONDS_FOR_A_TREE
        while (left := [*filter(_lives, _below(root))]) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        os.kill(root, signal.SIGKILL)


def _below(root: int) -> Iterator[int]:
    for child in _children(root):
        yield child
        yield from _below(child)


def _lives(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    fields = stat_fields(process)
    return bool(fields) and fields[0] != b"Z"


def _children(parent: int | str = "self") -> Iterator[int]:
    tasks = f"/proc/{parent}/task"
    with contextlib.suppress(OSError):
        for task in os.listdir(tasks):  # noqa: PTH208 - cheaper than paths, and asked fifty times a second
            with contextlib.suppress(OSError):
                yield from map(int, _proc_file(f"{tasks}/{task}/children").split())


def stat_fields(process: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the program's name, the state first; [] if there is no such process."""
    try:
        return _proc_file(f"/proc/{process}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def _proc_file(path: str) -> bytes:
    """Return the content of a file in /proc. Raises `OSError` if there is no such file."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(file, _PAGE), b""))
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the grader waits for a program."""

    wall_seconds: float = 60.0
    silent_seconds: float | None = None
    """Seconds between two outputs on the program's first channel, in its own time (see `Watchdog`). None: no limit."""
    silent_start_seconds: float = 0.0
    """Seconds before the first output, in the same time."""
    own_seconds: float | None = None
    """Seconds in total, in its own time. They and the program's memory are checked only with `silent_seconds`."""
    blocked_counts: bool = False
    """Whether `own_seconds` include the time in which the kernel makes the program wait (state D). A compiler
    reads files and may wait for a slow disk. A student's program needs no file."""
    unwanted: Callable[[], bool] = lambda: False
    """Returns whether nobody wants the program's result any more. Called again and again, so it must be quick."""


class Watchdog:
    """The time of a program and its children since its last output: CPU time, and time in which all of them sleep.

    Time spent waiting for a processor does not count, so no program counts as inactive because the machine is busy.
    Time in which the kernel makes all of them wait, such as for a disk, does not show that they are inactive either; it
    can count in the total.
    """

    def __init__(
        self, pid: int, members: Callable[[], Sequence[int]], limits: Patience, *, wrapped: bool = False
    ) -> None:
        """Observe the processes that `members` returns. If `wrapped`, SIGPROF goes to the children of `pid`."""
        self.pid = pid
        self.members = members
        self.limits = limits
        self.wrapped = wrapped
        self.allowed = limits.silent_start_seconds
        self.seconds = 0.0
        self.cpu = 0.0
        self.looked = time.monotonic()
        self.asked = False
        self.whole = 0.0
        self.memory = 0
        self.processes = 0

    @property
    def too_slow(self) -> bool:
        """Whether the program used more of its own time in total than allowed."""
        return self.limits.own_seconds is not None and self.whole > self.limits.own_seconds

    @property
    def too_large(self) -> bool:
        """Whether the program has more memory, or more processes, than any program needs."""
        return self.memory > MOST_MEMORY or self.processes > MOST_PROCESSES

    @property
    def due(self) -> float:
        """Seconds to the next measurement. Output is no reason to measure earlier: it shows that the program runs."""
        return self.looked + LOOK - time.monotonic()

    def end(self, *, heard: bool) -> bool:
        """Measure the program's time and memory, and return whether to end it. `heard`: it has just written something.

        A program that writes nothing for too long gets SIGPROF. If it has not ended a little later, return True.
        """
        now = time.monotonic()
        passed = now - self.looked
        if heard and not self.asked:
            self.seconds, self.allowed = 0.0, self.limits.silent_seconds or 0.0
        if passed < LOOK:
            return False
        self.looked = now
        used, blocked = self._used(passed)
        self.seconds += used
        self.whole += used + blocked
        if self.too_slow or self.too_large:
            return True
        if self.seconds < self.allowed:
            return False
        if self.asked:
            return True
        self.asked = True
        self.allowed = self.seconds * (1 + _GRACE)
        for pid in list(_children(self.pid)) if self.wrapped else [self.pid]:
            with contextlib.suppress(ProcessLookupError):  # the child of a wrapper may have ended
                os.kill(pid, signal.SIGPROF)
        return False

    def _used(self, passed: float) -> tuple[float, float]:
        """Return the seconds that the processes used since the last measurement, `passed` wall-clock seconds ago.

        The second number is the seconds in which the kernel made them wait; 0 unless `limits.blocked_counts`.
        """
        seen = list(_states(self.members()))
        self.processes = len(seen)
        before, self.cpu = self.cpu, sum(cpu for _, cpu, _ in seen)
        self.memory = sum(memory for _, _, memory in seen)
        used = max(0.0, self.cpu - before)  # negative when a child is gone
        idle = min(passed, 2 * LOOK)  # if more passed, the grader itself waited too
        states = {state for state, _, _ in seen}
        if not states or not states <= {*_SLEEPS, _BLOCKED}:
            return used, 0.0
        if _BLOCKED not in states:
            return used + idle, 0.0
        return used, idle if self.limits.blocked_counts else 0.0


def _states(pids: Sequence[int]) -> Iterator[tuple[str, float, int]]:
    """Yield for each existing process: state, CPU seconds (children that it waited for included), bytes of memory."""
    for fields in filter(None, map(stat_fields, pids)):
        yield fields[0].decode(), sum(map(int, fields[11:15])) / _TICK, int(fields[21]) * _PAGE
