"""Cache for what the grader compiles for itself: built once, stored between runs in a folder that only it can write."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from grader.core.errors import DriverError, OutOfRoom

__all__ = ["cached", "folder"]


def cached(parts: Iterable[bytes], make: Callable[[Path], None]) -> Path:
    """Return the folder for what is made from these `parts`; `make` fills it once, it exists complete or not at all.

    Raises `DriverError` when other users may write to the cache folder.
    """
    place = folder() / hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
    try:
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=place.parent) as made:
                make(Path(made))
                with contextlib.suppress(OSError):  # another grader made it first
                    Path(made).rename(place)
                    Path(made).mkdir()  # so that the end of the `with` finds it
    except OSError as error:
        raise OutOfRoom(f"{place.parent}: {error.strerror or error}. Make room there, or set XDG_CACHE_HOME") from error
    return place


def folder() -> Path:
    """Return the cache folder. Its files are executed, or linked into graded programs."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paged-kv-grader"
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = base.stat()
    except OSError as error:
        raise OutOfRoom(f"{base}: {error.strerror or error}. Make room there, or set XDG_CACHE_HOME") from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DriverError(f"{base} can be written by others; remove it, or set XDG_CACHE_HOME to a folder of your own")
    return base
