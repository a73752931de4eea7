"""End what a program leaves behind: children that changed their session, and dead processes that are not reaped.

`psutil` is not used here nor in watchdog.py: it finds the children of a process by reading the parents of all processes
of the machine. The kernel has a list of each process's children, and it is read fifty times a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import ClassVar

_PR_SET_CHILD_SUBREAPER = 36
_MOST_SECONDS = 5.0
_MOST_SECONDS_FOR_A_TREE = 1.0


@cache
def adopt_orphans() -> None:
    """Make orphans of the programs that this process starts its own children, so that it can end them."""
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

        Each of them may leave orphans of its own, which then become children of this process; hence the loop.
        """
        with self._changing:
            self._running.discard(self._program)
            return _end_all(self._is_leftover)

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


def _end_all(is_leftover: Callable[[int], bool]) -> float:
    deadline = time.monotonic() + _MOST_SECONDS
    spent = 0.0
    while time.monotonic() < deadline:
        children = [*filter(is_leftover, _children())]
        if not children:
            break
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                usage = os.wait4(child, 0)[2]
                spent += usage.ru_utime + usage.ru_stime
    return spent


def end_tree(root: int) -> None:
    """Kill a child of this process that adopts orphans, and everything that it has started, whatever they do.

    It is stopped first, so that it starts nothing more, and keeps the orphans below it until they are dead.
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
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def _children(parent: int | str = "self") -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{parent}/task").iterdir():
            with contextlib.suppress(OSError):
                yield from map(int, (task / "children").read_text().split())
