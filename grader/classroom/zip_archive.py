"""Unpack zips from outside within limits: what a submission can consist of, and nothing outside the folder.

Only C files, headers and, where requested, inner zips are written; everything else is only counted. No link is made, no
name that leads out of the folder is used, and the sizes that a zip states are not trusted. Every mistake in a zip is a
`UsageError` with one sentence; only a machine without room is another error, `OutOfRoom`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.system.capacity import no_room

__all__ = ["Archive", "Member", "opened"]

_MOST_FILE = 1 << 20
_MOST_TOTAL = 64 << 20
"""The most bytes of a C file or header (one more is written of a larger one), and of all that is unpacked."""
_MOST_ENTRIES = 20_000
_MOST_MEMBERS = 200_000
"""The most files and folders that one submission unpacks to, and the most files that a zip lists."""
_MOST_DEPTH = 64
_MOST_READ = 32 << 20
"""The most bytes that are read at once, and so of a zip's list of its files."""
_MOST_NAME = 200
_MOST_TOLD = 1 << 30
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, LookupError, ArithmeticError)
"""What `zipfile` raises for files that are not valid zips, besides what zlib and struct raise."""
_OUR_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)
_UTF8, _ENCRYPTED = 0x800, 0x1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file or folder in a zip."""

    parts: tuple[str, ...]
    """Its folders and its name. If it leads out of the zip: the parts before it does, or one part in their place."""
    info: zipfile.ZipInfo
    leads_out: bool

    @property
    def is_file(self) -> bool:
        """Whether it is a file that can be unpacked."""
        return not self.leads_out and self.info.filename[-1:] not in ("/", "\\")

    @property
    def ending(self) -> str:
        """The extension of its name, in lower case."""
        return Path(self.parts[-1]).suffix.lower()


class _Careful(io.BufferedReader):
    """Limits each read: zipfile reads a zip's list of its files as a whole, before it checks the list."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = _MOST_READ
        if size > _MOST_READ:
            raise zipfile.BadZipFile
        return super().read(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An open zip. Hidden files in it and macOS's own files are skipped."""

    name: str
    """The name of the zip in messages."""
    file: zipfile.ZipFile
    members: tuple[Member, ...]

    def unpack(self, members: Iterable[Member], folder: Path, source_name: str, *, above: int = 0) -> None:
        """Write what a submission can consist of, without the names of the first `above` folders.

        Inner zips are written too where no file is called `source_name`. Raises `UsageError` for what leads out, is
        encrypted or broken, or exceeds the limits of a submission.
        """
        wanted = list(members)
        kinds = (".c", ".h") if any(one.parts[-1] == source_name for one in wanted) else (".c", ".h", ".zip")
        left = _MOST_TOTAL
        seen: set[tuple[str, ...]] = set()
        for member in wanted:
            self._check(member, seen)
            if member.is_file and member.ending in kinds:
                most = left if member.ending == ".zip" else min(left, _MOST_FILE)
                left -= self._write(folder.joinpath(*member.parts[above:]), member, most + 1)
            if left < 0:
                raise UsageError(f"{self.name}: it unpacks to more than {_MOST_TOTAL >> 20} MB")

    def unpack_one(self, member: Member, path: Path) -> None:
        """Write a file that is not a submission, such as a Gradescope export's list of submissions."""
        self._check(member, set())
        self._write(path, member, _MOST_TOTAL)

    def _check(self, member: Member, seen: set[tuple[str, ...]]) -> None:
        shown = self._shown(member)
        if member.leads_out:
            raise UsageError(f"{self.name}: {shown} in the zip leads out of it, so nothing of it was unpacked")
        if len(member.parts) > _MOST_DEPTH:
            raise UsageError(f"{self.name}: in the zip a file is more than {_MOST_DEPTH} folders deep")
        seen.update(member.parts[:count] for count in range(1, len(member.parts) + 1))
        if len(seen) > _MOST_ENTRIES:
            raise UsageError(f"{self.name}: there are more than {_MOST_ENTRIES} files in the zip")
        if stat.S_ISLNK(member.info.external_attr >> 16) and member.ending in (".c", ".h", ".zip"):
            raise UsageError(f"{self.name}: {shown} in the zip is a symbolic link; hand in the file itself")

    def _write(self, path: Path, member: Member, most: int) -> int:
        """Write at most `most` bytes and return how many were written; a larger C file gets the size that it states."""
        size = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for piece in self._pieces(member, most):
                    size += file.write(piece)
                if _MOST_FILE < size < member.info.file_size:
                    file.truncate(min(member.info.file_size, _MOST_TOLD))
        except OSError as error:
            if error.errno in _OUR_MACHINE:
                raise no_room(path.parent, error) from error
            said = f"{self._shown(member)} in the zip cannot be unpacked: {error.strerror}"
            raise UsageError(f"{self.name}: {said}") from None
        return size

    def _pieces(self, member: Member, most: int) -> Iterator[bytes]:
        if member.info.flag_bits & _ENCRYPTED:
            raise UsageError(f"{self.name}: the zip is encrypted; hand in one without a password")
        if member.info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UsageError(f"{self.name}: the zip is compressed in a way that is rare; make an ordinary one")
        with _said_broken(self.name), self.file.open(member.info) as file:
            while most > 0 and (piece := file.read(min(most, _MOST_FILE))):
                most -= len(piece)
                yield piece

    @staticmethod
    def _shown(member: Member) -> str:
        return one_line(member.info.filename[:_MOST_NAME])


@contextlib.contextmanager
def opened(path: Path, name: str) -> Iterator[Archive]:
    """Open a zip, which messages call by this name. Raises `UsageError`."""
    try:
        descriptor = os.open(path, _READ)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UsageError(f"{name}: that is no regular file")
    except OSError as error:
        said = "it is a symbolic link" if error.errno == errno.ELOOP else f"we may not read it: {error.strerror}"
        raise UsageError(f"{name}: {said}") from None
    with _Careful(io.FileIO(descriptor)) as reader:
        with _said_broken(name):
            file = zipfile.ZipFile(reader)
        with file:
            if len(file.filelist) > _MOST_MEMBERS:
                raise UsageError(f"{name}: there are more than {_MOST_MEMBERS} files in the zip")
            yield Archive(name=name, file=file, members=tuple(_members(file)))


@contextlib.contextmanager
def _said_broken(name: str) -> Iterator[None]:
    try:
        yield
    except (*_BROKEN, zlib.error, struct.error, OSError):
        raise UsageError(f"{name}: the zip is broken, so nothing of it could be unpacked") from None


def _members(file: zipfile.ZipFile) -> Iterator[Member]:
    for info in file.filelist:
        name = info.filename
        if not info.flag_bits & _UTF8:
            with contextlib.suppress(UnicodeError):  # macOS writes UTF-8 and does not declare it
                name = name.encode("cp437").decode("utf-8")
        name = name.replace("\\", "/")
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        if name.startswith("/") or re.match("[A-Za-z]:/", name) or ".." in parts[:1]:
            yield Member(parts=(_short(f"({'_'.join(parts)})"),), info=info, leads_out=True)
        elif parts and parts[0] != "__MACOSX" and not any(one[0] == "." and one != ".." for one in parts):
            safe = parts[: parts.index("..")] if ".." in parts else parts
            yield Member(parts=(_short(safe[0]), *safe[1:]), info=info, leads_out=safe != parts)


def _short(name: str) -> str:
    """Return a name short enough for a file system: learning platforms put the student's own name behind theirs.

    The extension stays.
    """
    if len(name.encode(errors="replace")) <= _MOST_NAME:
        return name
    ending = Path(name).suffix[:8]
    return name.encode(errors="replace")[: _MOST_NAME - 40].decode(errors="ignore") + ending
