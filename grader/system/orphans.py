"""End what a program leaves behind: children that changed their session, and the dead that nobody waits for."""

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

__all__ = ["Family", "adopt_orphans", "end_tree"]

_PR_SET_CHILD_SUBREAPER = 36
_MOST_SECONDS = 5.0
_MOST_SECONDS_FOR_A_TREE = 1.0


@cache
def adopt_orphans() -> None:
    """From now on orphans of programs that we start become our children, so that we can end them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


os.register_at_fork(after_in_child=adopt_orphans.cache_clear)  # a child adopts none until it says so itself


class Family:
    """Our children while a program runs: those that it leaves to us are told from all others.

    Whatever we start lies in our own session, or is the first of a session that `_running` knows. So a child in another
    session is an orphan, whatever it did to its session, its user and its environment; but for those that were here
    before, which somebody else started.
    """

    _running: ClassVar[set[int]] = set()
    _changing: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, start: Callable[[], int], user: int | None = None) -> None:
        """`start` returns the number of the program that it started in a session of its own.

        `user` is nobody's but its own.
        """
        self._user = user
        with self._changing:
            self._before = set(_children())
            self._program = start()
            self._running.add(self._program)

    def members(self) -> list[int]:
        """The program, all that it has started and not buried, and the orphans that it left to us."""
        left = [child for child in _children() if child != self._program and self._is_leftover(child)]
        return [one for first in (self._program, *left) for one in (first, *_below(first))]

    def end_leftovers(self) -> float:
        """Kill and bury what the program left, once it is buried itself: their CPU seconds.

        Each of them may leave orphans of its own, which become our children in turn; hence the loop.
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
        found = [*filter(is_leftover, _children())]
        if not found:
            break
        for child in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                usage = os.wait4(child, 0)[2]
                spent += usage.ru_utime + usage.ru_stime
    return spent


def end_tree(root: int) -> None:
    """Kill a child of ours that adopts orphans, and everything that it has started, whatever they do.

    It is stopped first: so it starts nothing more, and keeps the orphans below it until they are dead.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(root, signal.SIGSTOP)
        deadline = time.monotonic() + _MOST_SECONDS_FOR_A_TREE
        while (left := [*filter(_lives, _below(root))]) and time.monotonic() < deadline:
            for one in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(one, signal.SIGKILL)
            time.sleep(0.01)
        os.kill(root, signal.SIGKILL)


def _below(root: int) -> Iterator[int]:
    for child in _children(root):
        yield child
        yield from _below(child)


def _lives(process: int) -> bool:
    """Is it there, and more than an entry in a table that waits for its parent?"""
    try:
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def _children(parent: int | str = "self") -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{parent}/task").iterdir():
            with contextlib.suppress(OSError):
                yield from map(int, (task / "children").read_text().split())
