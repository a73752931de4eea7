"""Keep values of the grader for later runs, if they are expensive to compute: checked cases, an engine's closure.

A stored file is named by a hash of everything that it depends on, and begins with a hash of its content. A damaged file
is replaced, and a grading works without any stored file. The files are in the grader's private folder
(grader.system.folders), to which only its user has access. They contain nothing that a submission reported.

To hash hundreds of files takes longer than to load a stored value. So there is a symbolic link to the stored file,
named by a hash of the sizes and times of the hashed files; Python identifies its bytecode in this way. A file that was
changed a moment ago could change again within the same tick of the file system's clock. In that case the contents are
hashed.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from grader.assignment.input_file import read_bytes
from grader.core.errors import CaseFileError, GraderError
from grader.system import folders

_ROOT = Path(__file__).parents[2]
_ROOMS = ("reference", "grader/core", "grader/assignment", "grader/judge", "grader/labs")
_NO_CODE_OF_OURS = ("tests", "__pycache__")
_MOST_FILES = 16
"""The most stored files of each kind. A set of cases has up to 3 MB. The newest files are kept."""
_MOST_BYTES = 1 << 20
"""The most bytes of a file that is hashed. Its readers accept only much smaller files."""
_SETTLED_SECONDS = 3.0
"""After this time, the next change of a file certainly gets another time stamp. Some file systems have 2 s steps."""

Value = TypeVar("Value")


def stored(kind: str, of: object, files: Callable[[], Iterable[Path]], make: Callable[[], Value]) -> Value:
    """Return the stored value, or call `make` and store its value.

    All values of a `kind` have one type. A value depends on the `repr` of `of`, on the files and on the grader's code.
    """
    try:
        by_time = _by_time(kind, of, files())
        value: Value | None = _read(by_time) if by_time is not None else None
        if value is not None:
            return value
        place = _place(kind, of, files())
    except (OSError, GraderError):  # a file cannot be read, or this user has no private folder
        return make()
    if place is None:
        return make()
    value = _read(place)
    if value is None:
        value = make()
        with contextlib.suppress(OSError, GraderError):
            if place != _place(kind, of, files()):  # somebody has edited a file meanwhile
                return value
        _write(place, value)
    if by_time is not None:
        _put(by_time, lambda link: link.symlink_to(place))
    return value


def _by_time(kind: str, of: object, files: Iterable[Path]) -> Path | None:
    """Return the path of the link to the value for these sizes and times of files; None if a file changed just now."""
    seen = [*_code_times(), *map(_times, files)]
    if max(looked_at.changed for looked_at in seen) > (time.time() - _SETTLED_SECONDS) * 1e9:
        return None
    return _folder(f"{kind}-by-time") / _hash(repr((of, sys.version, seen)).encode())


def _place(kind: str, of: object, files: Iterable[Path]) -> Path | None:
    """Return the path where the value for the current contents of the files is or will be stored.

    Returns None if the code has changed since this process imported it, as after an update during `grade watch`.
    """
    if tuple(map(_times, _code_files())) != _code_times():
        return None
    contents = [(str(path), _hash(read_bytes(path, _MOST_BYTES, CaseFileError))) for path in files]
    return _folder(kind) / _hash(repr((of, sys.version, _code(), contents)).encode())


def _folder(name: str) -> Path:
    place = folders.cache_folder() / name
    place.mkdir(exist_ok=True)
    return place


class _Times(NamedTuple):
    """Attributes of a file that show a change of its content."""

    path: str
    number: int
    size: int
    written: int
    changed: int
    """The time of the last change of content, name or rights, in nanoseconds, as `written`. No program can set it."""


def _times(path: Path) -> _Times:
    status = path.stat()
    return _Times(str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@cache
def _code_times() -> tuple[_Times, ...]:
    """Return the times of the code that computes the values, as they were at the first call in this process."""
    return tuple(map(_times, _code_files()))


@cache
def _code() -> str:
    """Return a hash of the code that computes the values."""
    return _hash(repr([(str(path), _hash(path.read_bytes())) for path in _code_files()]).encode())


def _code_files() -> Iterator[Path]:
    for room in _ROOMS:
        for folder, inner, names in os.walk(_ROOT / room):
            inner[:] = sorted(set(inner).difference(_NO_CODE_OF_OURS))
            # a header contains the numbers of its lab
            yield from (Path(folder, name) for name in sorted(names) if name.endswith((".py", ".h")))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(place: Path) -> Any:
    """Return the stored value; None if there is no file or if the file is damaged."""
    with contextlib.suppress(OSError):
        content = place.read_bytes()
        size = hashlib.sha256().digest_size
        if hashlib.sha256(memoryview(content)[size:]).digest() == content[:size]:
            with _no_search_for_garbage():
                return pickle.loads(memoryview(content)[size:])  # noqa: S301 - a private file of ours
    return None


@contextlib.contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Switch the garbage collector off. Loading makes thousands of objects, and none is garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _write(place: Path, value: object) -> None:
    """Store a value, if possible."""
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    _put(place, lambda temporary: temporary.write_bytes(hashlib.sha256(content).digest() + content))


def _put(place: Path, make: Callable[[Path], object]) -> None:
    """Let `make` make a file or a link, and put it at `place` in one step, if possible."""
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=place.parent) as folder:
        temporary = Path(folder, place.name)
        make(temporary)
        temporary.rename(place)
        _leave_newest(place.parent)


def _leave_newest(folder: Path) -> None:
    files = {path: path.lstat().st_mtime for path in folder.iterdir() if path.is_symlink() or path.is_file()}
    for path in sorted(files, key=files.__getitem__, reverse=True)[_MOST_FILES:]:
        path.unlink(missing_ok=True)
