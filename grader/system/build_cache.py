"""Cache for what the grader compiles for itself: built once, stored between runs in a folder that only it can write.

It is the user's cache folder, or a folder in the temporary folder where the user has none that can be written, as in a
container without a home.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from grader.core.errors import BrokenTool, OutOfRoom
from grader.system.private_folder import temporary_folder

_NAME = "paged-kv-grader"
_REMEDY = "set XDG_CACHE_HOME to a folder of your own"


def cached(parts: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """Return the folder for what is made from these `parts`; `make` fills it once, it exists complete or not at all.

    Raises `BrokenTool` when other users may write to the cache folder, `OutOfRoom` when it cannot be written.
    """
    name = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
    users = users_folder()
    if _is_there(users) and (users / name).is_dir():  # also where nothing can be written any more
        return users / name
    place = folder() / name
    try:
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
                make(Path(temporary))
                with contextlib.suppress(OSError):  # another grader made it first
                    Path(temporary).rename(place)
                    Path(temporary).mkdir()  # so that the end of the `with` finds it
    except OSError as error:
        raise OutOfRoom(f"{place.parent}: {error.strerror or error}. Make room there, or {_REMEDY}") from error
    return place


def folder() -> Path:
    """Return the cache folder. Its files are executed, or linked into graded programs.

    Raises `BrokenTool` when other users may write to it, `OutOfRoom` when none can be made.
    """
    users = users_folder()
    if _is_there(users) and os.access(users, os.W_OK):
        return users
    return _temporary()


def users_folder() -> Path:
    """Return the path of the folder in the user's cache, whether it can be written or not."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / _NAME
    except RuntimeError:  # neither HOME nor the system names a home for this user
        return Path("/.cache", _NAME)


def _is_there(users: Path) -> bool:
    """Whether this folder exists, or could be made. Raises `BrokenTool` when other users may write to it."""
    try:
        users.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = users.stat()
    except OSError:
        return False
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BrokenTool(f"{users} can be written by others; remove it, or {_REMEDY}")
    return True


def _temporary() -> Path:
    """Return this user's cache in the temporary folder. Anybody may have made a folder or a link of its name there."""
    place = temporary_folder() / f"{_NAME}-{os.geteuid()}"
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
