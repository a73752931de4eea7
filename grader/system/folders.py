"""The grader's own folders: private ones for single gradings, and the cache of what it compiles for itself.

A grader that is killed removes nothing, so a later grader removes the private folders of dead processes. The name of
each folder contains the id and start time of its process. The process also holds a lock on the folder, which the kernel
releases however the process ends: machines that share the disk do not know each other's process ids.

The cache is built once and stored between runs, in a folder that only its user can write. It is in the user's cache
folder, or in the temporary folder where the user has none that can be written, as in a container without a home. Root
with another user's HOME also has it in the temporary folder: that user could not remove what root leaves at home.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from grader.core.errors import BrokenTool, OutOfRoom
from grader.system.process_tree import delayed_interrupts, stat_fields

_PRIVATE = re.compile(r"grade-(\d+)-(\d+)-[0-9a-f]{16}")
_START = 19  # the index of the process's start time in /proc/PID/stat, counted after the name
_CACHE = "paged-kv-grader"
_REMEDY = "set XDG_CACHE_HOME to a folder of your own"


def temporary_folder() -> Path:
    """Return the system's folder for temporary files.

    Python writes a file there to try the folder. No interrupt may leave that file behind.
    """
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
        named = {Path(entry): _PRIVATE.fullmatch(entry.name) for entry in entries}
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
    """Return a process's start time in kernel ticks; "" if there is no such process, or if it has ended."""
    fields = stat_fields(pid)
    return "" if not fields or fields[0] in (b"Z", b"X") else fields[_START].decode()


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


def cached(parts: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """Return the cached folder for these `parts`. If it is missing, `make` fills it, completely or not at all.

    Raises `BrokenTool` if another user owns or can change the cache folder, `OutOfRoom` if it cannot be written.
    """
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
    users = users_cache_folder()
    if _is_there(users) and (users / name).is_dir():  # reading works on a full disk, too
        return users / name
    place = cache_folder() / name
    try:
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
                make(Path(temporary))
                try:
                    Path(temporary).rename(place)
                    Path(temporary).mkdir()  # so that the end of the `with` finds it
                except OSError:
                    if not place.is_dir():  # else another grader made it first
                        raise
    except OSError as error:
        raise OutOfRoom(f"{place.parent}: {error.strerror or error}. Make room there, or {_REMEDY}") from error
    return place


def cache_folder() -> Path:
    """Return the cache folder. Its files are executed, or linked into graded programs.

    Raises `BrokenTool` if another user owns or can change it, `OutOfRoom` if no folder can be made.
    """
    users = users_cache_folder()
    if _is_there(users) and os.access(users, os.W_OK):
        return users
    return _temporary_cache()


def users_cache_folder() -> Path:
    """Return the path of the folder in the user's cache, whether it can be used or not.

    Relative paths are ignored, as the XDG specification says: they would depend on the current folder.
    """
    places = [Path(os.environ.get("XDG_CACHE_HOME", ""))]
    with contextlib.suppress(RuntimeError):  # neither HOME nor the system names a home for this user
        places.append(Path.home() / ".cache")
    return next(filter(Path.is_absolute, places), Path("/.cache")) / _CACHE


def _is_there(users: Path) -> bool:
    """Whether this folder exists, or could be made. Raises `BrokenTool` if another user owns or can change it."""
    try:
        if os.geteuid() == 0 and _owner_of_place(users) != 0:
            return False
        users.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = users.stat()
    except OSError:
        return False
    if status.st_uid != os.geteuid():
        raise BrokenTool(f"{users} belongs to another user (ID {status.st_uid}): remove it as that user, or {_REMEDY}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BrokenTool(f"{users} is writable by other users; remove it, or {_REMEDY}")
    return True


def _owner_of_place(users: Path) -> int:
    """Return the owner of the folder in XDG_CACHE_HOME, else of the home folder, or of its nearest existing parent."""
    place = users.parent if os.environ.get("XDG_CACHE_HOME") else users.parents[1]
    return next(folder for folder in (place, *place.parents) if folder.exists()).stat().st_uid


def noexec(program: Path) -> str:
    """Return advice for a program in a cache or TMPDIR that is mounted noexec; "" if it is not mounted so."""
    for variable, place in (("XDG_CACHE_HOME", users_cache_folder()), ("TMPDIR", temporary_folder())):
        if program.is_relative_to(place) and program.exists() and os.statvfs(place).f_flag & os.ST_NOEXEC:
            return (
                f"no program can be executed in {place}: its file system is mounted noexec. "
                f"Set {variable} to a folder of another file system"
            )
    return ""


def closed_folders(path: Path) -> list[str]:
    """Return the folders above a path that only their owners and groups may enter, the outermost last."""
    return [str(folder) for folder in path.resolve().parents if not folder.stat().st_mode & stat.S_IXOTH]


def _temporary_cache() -> Path:
    """Return this user's cache in the temporary folder. Other users may have made a folder or a link of its name."""
    place = temporary_folder() / f"{_CACHE}-{os.geteuid()}"
    try:
        place.mkdir(exist_ok=True, mode=0o700)
        status, around = place.lstat(), place.parent.stat()
    except OSError as error:
        raise OutOfRoom(f"{place}: {error.strerror or error}. Make room there, or {_REMEDY}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise BrokenTool(f"{place} is not a folder of this user alone; remove it, or {_REMEDY}")
    if around.st_uid not in (0, os.geteuid()) or (around.st_mode & 0o022 and not around.st_mode & stat.S_ISVTX):
        raise BrokenTool(
            f"other users can replace what is in {place.parent}; set TMPDIR to another folder, or {_REMEDY}"
        )
    return place
