"""Private folders: each is named after its process and locked while that runs; those of dead processes are removed.

A grader that is killed removes nothing. So the names of its folders contain its process id and start time. Each folder
also has a lock that the kernel releases however the process ends, because another machine that shares the disk has
other process ids.
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

from grader.system.interrupts import delayed_interrupts

_NAME = re.compile(r"grade-(\d+)-(\d+)-[0-9a-f]{16}")
_START = 19  # the index of the process's start time in /proc/PID/stat, counted after the name


def temporary_folder() -> Path:
    """The system's folder for temporary files. Python tries it with a file, which no interrupt may leave there."""
    with delayed_interrupts():
        return Path(tempfile.gettempdir())


@contextlib.contextmanager
def private_folder(user: int | None) -> Iterator[Path]:
    """Make a new folder for this user in the temporary folder, and remove it with its contents at the end."""
    place = Path(temporary_folder(), f"grade-{os.getpid()}-{_start(os.getpid())}-{secrets.token_hex(8)}")
    lock = -1
    try:
        place.mkdir(mode=0o700)
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # a file system without locks: no other grader removes folders there either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if user is not None:
            os.chown(place, user, user)
        place.chmod(0o700)
        yield place
    finally:
        try:
            remove(place)
        except KeyboardInterrupt:  # an interrupt comes only once, but may come during the removal
            remove(place)
            raise
        finally:
            if lock >= 0:
                os.close(lock)


def remove_abandoned(users: Collection[int]) -> None:
    """Remove the private folders of dead graders in the temporary folder, if they belong to one of the `users`."""
    with contextlib.suppress(OSError), os.scandir(temporary_folder()) as entries:
        named = {Path(entry): _NAME.fullmatch(entry.name) for entry in entries}
        for place in [place for place, match in named.items() if match and _start(int(match[1])) != match[2]]:
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
    """Return a process's start time in kernel ticks; "" when there is no such process, or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[_START]


def _has_processes(user: int) -> bool:
    """Whether a user has live processes, which could change a folder while it is removed."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == user and _start(int(process.name)):
                return True
    return False


def remove(folder: Path) -> None:
    """Remove a folder whose subfolders may be nested to any depth or unreadable. No program may use it any more.

    Nested folders are moved up to `folder`, so that no path becomes long and no recursion is needed.
    """
    with contextlib.suppress(OSError):  # on a failing disk, what can be removed is removed
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
