"""Bundles: files made from an assignment and some of its cases, and put into a folder in one step."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.errors import UsageError, unwritable

_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, the earliest possible one: the same files make the same bytes."""
_REGULAR = 0o100000


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a bundle."""

    name: str
    """The path in the bundle, with slashes."""
    content: bytes
    runs: bool = False
    """Whether it is a program."""

    @property
    def mode(self) -> int:
        """The permissions of the file; those in the clone that makes the bundle have no influence."""
        return 0o755 if self.runs else 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A kind of bundle: how it is made, and its description."""

    what: str
    """A short description."""
    make: Callable[[Lab, Sequence[Case]], Iterable[File]]
    """Makes the files from an assignment and the cases that the bundle is to contain."""
    then: str
    """What the user does with the bundle next."""


def zipped(files: Iterable[File]) -> bytes:
    """Return a zip archive of the files, sorted by name. The same files give the same archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for file in sorted(files, key=lambda file: file.name):
            entry = zipfile.ZipInfo(file.name, _TIME)
            entry.create_system = 3  # Unix; otherwise unzip programs ignore the permissions
            entry.external_attr = (_REGULAR | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            writer.writestr(entry, file.content)
    return archive.getvalue()


def check_folder(folder: Path, *, replace: bool | None = None) -> None:
    """Raise `UsageError` when a bundle cannot be put there, before any unneeded work is done.

    `replace` is None where the command has no such option.
    """
    if folder.name in ("", ".."):
        raise UsageError(f"{folder}: write the name of a new folder")
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: there is no folder {folder.parent}")
    if not os.access(folder.parent, os.W_OK):
        raise UsageError(f"{folder}: no permission to write to {folder.parent}")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder}: it is not a folder; write the name of a new one")
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        option = "" if replace is None else ", or --replace to replace an earlier bundle"
        raise UsageError(f"{folder}: it is not empty; write another name{option}")


def put(files: Iterable[File], folder: Path, *, replace: bool | None = None) -> None:
    """Put the files into a new folder: it exists complete or not at all, however this process ends.

    With `replace` an earlier bundle is replaced. Raises `UsageError` like `check_folder`, and when the folder contains
    a file that is not part of this bundle: it may be the user's work.
    """
    check_folder(folder, replace=replace)
    wanted = {file.name: file for file in files}
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    if others := [name for name in names if name not in wanted]:
        raise UsageError(f"{folder}: {others[0]} in it is not part of this bundle; move it, or write another name")
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:  # such as in /proc, where root may write and nobody can
        raise unwritable(folder, error) from error
    try:
        for file in wanted.values():
            _write(staging / "new" / file.name, file)
        if folder.is_dir() and any(folder.iterdir()):
            folder.rename(staging / "old")
        (staging / "new").rename(folder)
    except BaseException:
        if (staging / "old").is_dir() and not folder.exists():
            (staging / "old").rename(folder)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.content)
    if file.runs:
        path.chmod(path.stat().st_mode | 0o111)
