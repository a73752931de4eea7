"""Users that are nobody, one for each of our processes: no submission can see or signal another."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from grader.errors import TooBusy

__all__ = ["USERS", "user_of_this_process"]

_FIRST, _COUNT = 61_184, 64

USERS = range(_FIRST, _FIRST + _COUNT)
"""All users that it may be."""


@dataclass(slots=True)
class _Held:
    """What a process has taken. A forked one has this too, but the slot is its parent's."""

    by: int = 0
    number: int = 0
    mark: socket.socket | None = None


_held = _Held()


def user_of_this_process() -> int:
    """A user id that no other grader has, until this process ends. Raises `TooBusy` when all are taken."""
    if _held.by != os.getpid():
        _held.number, _held.mark = _take()
        _held.by = os.getpid()
    return _FIRST + _held.number


def _take() -> tuple[int, socket.socket]:
    """The first free number. A bound name without a file is given back by the kernel, however we end."""
    for number in range(_COUNT):
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0paged-kv-grader user {_FIRST + number}")
        except OSError:
            mark.close()
        else:
            return number, mark
    raise TooBusy(f"{_COUNT} gradings are under way on this machine, and there are no more users for them")
