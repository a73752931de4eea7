"""Values of ours that are computed once and stored between runs: cases that were checked, the closure of an engine.

A stored file is named by a hash of all that it depends on, and begins with a hash of its content: a damaged file is
replaced, and a grading does not need one. The files are in the grader's private folder (grader.system.folders), to
which only its user has access, and hold nothing that a submission reported.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from grader.assignment.input_file import read_bytes
from grader.core.errors import CaseFileError, GraderError
from grader.system import folders

_ROOT = Path(__file__).parents[2]
_ROOMS = ("reference", "grader/core", "grader/assignment", "grader/judge", "grader/labs")
_NO_CODE_OF_OURS = ("tests", "__pycache__")
_MOST_FILES = 10
"""Of each kind; a set of cases has up to 17 MB. The ones written last are kept."""
_MOST_BYTES = 1 << 20
"""Of a file that is hashed; who reads it refuses much smaller ones."""

Value = TypeVar("Value")


def stored(kind: str, of: object, files: Callable[[], Iterable[Path]], make: Callable[[], Value]) -> Value:
    """Return what `make` makes of something and of these files, from where it is stored, if it is.

    Its type is the same for a `kind`. It depends on `of`, whose `repr` says it, on the files and on our code.
    """
    try:
        place = _place(kind, of, files())
    except (OSError, GraderError):  # a file cannot be read, or this user has no private folder
        return make()
    if place is None:
        return make()
    value: Value | None = _read(place)
    if value is None:
        value = make()
        with contextlib.suppress(OSError, GraderError):
            if place == _place(kind, of, files()):  # else somebody edited a file meanwhile
                _write(place, value)
    return value


def _place(kind: str, of: object, files: Iterable[Path]) -> Path | None:
    """Return the path for what is made of the files as they are.

    None where the code is no longer that which this process has imported, as after an update below `grade watch`.
    """
    if tuple(map(_times, _code_files())) != _code_times():
        return None
    contents = [(str(path), _hash(read_bytes(path, _MOST_BYTES, CaseFileError))) for path in files]
    folder = folders.cache_folder() / kind
    folder.mkdir(exist_ok=True)
    return folder / _hash(repr((of, sys.version, _code(), contents)).encode())


def _times(path: Path) -> tuple[str, int, int, int, int]:
    """A file as the file system knows it, without its content. No program can set the time of its last change."""
    status = path.stat()
    return str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@cache
def _code_times() -> tuple[object, ...]:
    """The files of the code that decides what is computed, as they were when this process first asked."""
    return tuple(map(_times, _code_files()))


@cache
def _code() -> str:
    """A hash of that code."""
    return _hash(repr([(str(path), _hash(path.read_bytes())) for path in _code_files()]).encode())


def _code_files() -> Iterator[Path]:
    for room in _ROOMS:
        for folder, inner, names in os.walk(_ROOT / room):
            inner[:] = sorted(set(inner).difference(_NO_CODE_OF_OURS))
            # a header has the numbers of its lab
            yield from (Path(folder, name) for name in sorted(names) if name.endswith((".py", ".h")))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(place: Path) -> Any:
    """Return the stored value; None when there is none, or when its file was damaged."""
    with contextlib.suppress(OSError):
        content = place.read_bytes()
        size = hashlib.sha256().digest_size
        if hashlib.sha256(memoryview(content)[size:]).digest() == content[:size]:
            with _no_search_for_garbage():
                return pickle.loads(memoryview(content)[size:])  # noqa: S301 - a private file of ours
    return None


@contextlib.contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Inside, thousands of objects are made, and none is garbage."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _write(place: Path, value: object) -> None:
    """Store a value, where that can be done."""
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=place.parent) as folder:
        temporary = Path(folder, place.name)
        temporary.write_bytes(hashlib.sha256(content).digest() + content)
        temporary.rename(place)
        _leave_newest(place.parent)


def _leave_newest(folder: Path) -> None:
    files = {path: path.stat().st_mtime for path in folder.iterdir() if path.is_file()}
    for path in sorted(files, key=files.__getitem__, reverse=True)[_MOST_FILES:]:
        path.unlink(missing_ok=True)
