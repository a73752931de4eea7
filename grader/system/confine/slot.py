"""Unused user ids, one for each grader process, so that no submission can see or signal another."""

from __future__ import annotations

import contextlib
import fcntl
import os
from functools import cache
from pathlib import Path

from grader.core.errors import CannotStart, OutOfRoom
from grader.system.folders import temporary_folder

_FIRST, _COUNT = 61_184, 64
_PARENTS = ("/run", "/var/lib")
_NAME = "paged-kv-grader-users"

USERS = range(_FIRST, _FIRST + _COUNT)
"""All user ids that a process may get."""


def user_of_this_process() -> int:
    """Return a user id that no other grader has until this process ends. Raises `OutOfRoom` when all are taken."""
    return _user(os.getpid())


@cache
def _user(_: int) -> int:
    """Lock and return the first free user id; the kernel releases the lock when this process ends.

    A forked process has another id, so it takes a user of its own: the lock that it inherits belongs to its parent.
    """
    folder = _folder()
    try:
        for number in range(_COUNT):
            lock = os.open(str(_FIRST + number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600, dir_fd=folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
            else:
                return _FIRST + number
    finally:
        os.close(folder)
    raise OutOfRoom(f"{_COUNT} gradings are running on this machine, and no user ID is left for another one")


def _folder() -> int:
    """Return a descriptor of the lock folder. Only the grader's user has access: no other user can take the locks."""
    for parent in (*_PARENTS, temporary_folder()):
        place = Path(parent, _NAME)
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, exist_ok=True)
            folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            status = os.fstat(folder)
            if status.st_uid == os.geteuid() and not status.st_mode & 0o077 and os.access(place, os.W_OK):
                return folder
            os.close(folder)
    raise CannotStart(f"there is no place for locks: none of {', '.join(_PARENTS)} can be written to")
