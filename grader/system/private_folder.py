"""Private folders: each says who made it and is locked while he lives; those of the dead are removed.

A grader that is killed removes nothing. So its folders have its process number and start in their names, and a lock
that the kernel gives back however the process ends: another machine that shares the disk has other process numbers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

__all__ = ["private_folder", "remove", "remove_abandoned"]

_NAME = re.compile(r"grade-(\d+)-(\d+)-[0-9a-f]{16}")
_START = 19  # of /proc/PID/stat, counted behind the name: when the process began


@contextlib.contextmanager
def private_folder(user: int | None) -> Iterator[Path]:
    """A fresh folder in the temporary one for this user, gone with everything in it at the end."""
    place = Path(tempfile.gettempdir(), f"grade-{os.getpid()}-{_start(os.getpid())}-{secrets.token_hex(8)}")
    lock = -1
    try:
        place.mkdir(mode=0o700)
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # a file system without locks: then nobody else sweeps there either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if user is not None:
            os.chown(place, user, user)
        place.chmod(0o700)
        yield place
    finally:
        try:
            remove(place)
        except KeyboardInterrupt:  # it comes once, but may come just here
            remove(place)
            raise
        finally:
            if lock >= 0:
                os.close(lock)


def remove_abandoned(users: Collection[int]) -> None:
    """Remove the private folders that dead graders left in the temporary one, if they belong to one of the users."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        named = {Path(entry): _NAME.fullmatch(entry.name) for entry in entries}
        for place in [place for place, made in named.items() if made and _start(int(made[1])) != made[2]]:
            with contextlib.suppress(OSError):
                _remove_abandoned(place, users)


def _remove_abandoned(place: Path, users: Collection[int]) -> None:
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        owner = os.fstat(lock).st_uid
        if owner in users and (owner == os.geteuid() or not _has_processes(owner)):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(place)
    finally:
        os.close(lock)


def _start(pid: int) -> str:
    """When a process began, in the kernel's ticks; "" when there is none, or one that has ended."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if told[0] in "ZX" else told[_START]


def _has_processes(user: int) -> bool:
    """Could somebody still change what is there, while we remove it?"""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == user and _start(int(process.name)):
                return True
    return False


def remove(folder: Path) -> None:
    """Remove a folder in which a program may have dug as deep as it liked, and shut folders. No program is left there.

    What is below a folder in it is moved up, so that no path becomes long and nothing calls itself.
    """
    with contextlib.suppress(OSError):  # of a disk that fails what we can remove is removed
        folder.chmod(0o700)
        left = _folders(folder)
        while left:
            inner = left.pop()
            inner.chmod(0o700)
            for deeper in _folders(inner):
                deeper.chmod(0o700)
                left.append(deeper.rename(folder / secrets.token_hex(8)))
            shutil.rmtree(inner)
    shutil.rmtree(folder, ignore_errors=True)


def _folders(folder: Path) -> list[Path]:
    return [Path(entry) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
