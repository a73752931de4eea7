"""What a bundle is: a few files made of an assignment and some of its cases, put into a folder all at once."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.errors import UsageError

__all__ = ["Bundle", "File", "check_folder", "put", "zipped"]

_TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file in an archive, the earliest there is: the same files make the same bytes."""
_REGULAR = 0o100000


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a bundle."""

    name: str
    """Where it lies in the bundle, with slashes."""
    content: bytes
    runs: bool = False
    """Is it a program?"""

    @property
    def mode(self) -> int:
        """Its permissions, whatever they are in the clone of whoever packs."""
        return 0o755 if self.runs else 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """How one is made, and what is to be said about it."""

    what: str
    """What it is, in a few words."""
    make: Callable[[Lab, Sequence[Case]], Iterable[File]]
    """Of an assignment and those of its cases that it is to hold."""
    then: str
    """What to do with it."""


def zipped(files: Iterable[File]) -> bytes:
    """An archive of them, sorted by name. The same files give the same archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for file in sorted(files, key=lambda file: file.name):
            entry = zipfile.ZipInfo(file.name, _TIME)
            entry.create_system = 3  # Unix, else nobody reads the permissions
            entry.external_attr = (_REGULAR | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            writer.writestr(entry, file.content)
    return archive.getvalue()


def check_folder(folder: Path, *, replace: bool) -> None:
    """Can a bundle be put there? Raises `UsageError` before any work is done for nothing."""
    if folder.name in ("", ".."):
        raise UsageError(f"{folder}: write the name of a new folder")
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: there is no folder {folder.parent}")
    if not os.access(folder.parent, os.W_OK):
        raise UsageError(f"{folder}: we may not write into {folder.parent}")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder}: that is no folder; write the name of a new one")
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        raise UsageError(f"{folder}: there is something in it; write another name, or --replace for a bundle of before")


def put(files: Iterable[File], folder: Path, *, replace: bool = False) -> None:
    """Fill a new folder: it is there as a whole or not at all, however we end.

    With `replace` a bundle of before gives way. Raises `UsageError` as `check_folder` does, and when the folder holds
    anything that this bundle does not: it may be somebody's work.
    """
    check_folder(folder, replace=replace)
    wanted = {file.name: file for file in files}
    _check_replaced(folder, wanted)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for file in wanted.values():
            _write(made / "new" / file.name, file)
        if folder.is_dir() and any(folder.iterdir()):
            folder.rename(made / "old")
        (made / "new").rename(folder)
    except BaseException:
        if (made / "old").is_dir() and not folder.exists():
            (made / "old").rename(folder)
        raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _check_replaced(folder: Path, wanted: Collection[str]) -> None:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    others = [name for name in names if name not in wanted]
    if others:
        raise UsageError(f"{folder}: {others[0]} in it is no part of this bundle; move it away, or write another name")


def _write(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.content)
    if file.runs:
        path.chmod(path.stat().st_mode | 0o111)
