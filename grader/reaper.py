"""End what a program leaves behind: children that changed their session, and the dead that nobody waits for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["adopt_orphans", "end_leftovers", "end_tree"]

_PR_SET_CHILD_SUBREAPER = 36
_MOST_SECONDS = 5.0
_MOST_SECONDS_FOR_A_TREE = 1.0


@cache
def adopt_orphans() -> None:
    """From now on orphans of programs that we start become our children, so that we can end them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_leftovers(session: int, user: int | None, mark: str) -> None:
    """Kill and bury all our children of that session or user, or with `mark` in their environment.

    Each of them may leave orphans of its own, which become our children in turn; hence the loop.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < deadline:
        found = [child for child in _children() if _is_leftover(child, session, user, mark)]
        if not found:
            return
        for child in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


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


def _is_leftover(child: int, session: int, user: int | None, mark: str) -> bool:
    place = Path(f"/proc/{child}")
    try:
        own_session = os.getsid(child) == session
        own_user = user is not None and place.stat().st_uid == user
        return own_session or own_user or mark.encode() in (place / "environ").read_bytes()
    except OSError:
        return False
