"""Unpack zips from outside within limits: only files that a submission can consist of, and only into the folder.

Only source files, headers and, if requested, inner zips are written; everything else is only counted. No link is made,
no name that leads out of the folder is used, and the sizes that a zip states are not trusted. Every mistake in a zip is
a `UsageError` with one sentence. If the machine has no room, the error is `OutOfRoom`.

A student's zip is the submission itself, or a file in the student's folder. It may contain one more zip, but no third.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.assignment.source import ARCHIVES, Source, collect, levels_below
from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.system.folders import private_folder
from grader.system.resources import MACHINE_ERRORS, no_room

ZIP = ".zip"
MACOS = "__MACOSX"
"""The folder that macOS adds to a zip. Its files are invisible on a Mac."""

_MOST_FILE = 1 << 20
MOST_TOTAL = 64 << 20
"""The most bytes of a source file or header (of a larger file one byte more is written), and of all files together."""
_MOST_ENTRIES = 20_000
_MOST_MEMBERS = 200_000
"""The most files and folders that one submission unpacks to, and the most files that a zip lists."""
_MOST_DEPTH = 64
_MOST_READ = 32 << 20
"""The most bytes that are read at once, which also limits a zip's list of its files."""
_CLASS_FACTOR = 5
"""A class's zip may list this many times more files: what one student packed must not stop the other students."""
_MOST_NAME = 255
"""The most bytes of a name on a file system."""
_MOST_SHOWN = 200
_MOST_TOLD = 1 << 30
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, LookupError, ArithmeticError)
"""What `zipfile` raises for files that are not valid zips, in addition to what zlib and struct raise."""
_FIRST_HAN, _LAST_HAN = "\u4e00", "\u9fff"
_UTF8, _ENCRYPTED = 0x800, 0x1
_LISTED_BYTES = 46
"""The bytes of an entry in a zip's list, without its name and the parts after the name."""
_MOST_NESTED = 2
"""The most zips in which a file may be nested; the zip of the whole class does not count."""
_Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A file or folder in a zip."""

    parts: tuple[str, ...]
    """The folders and the name. If the path leads out of the zip, only the parts before `..`, or one made-up part."""
    info: zipfile.ZipInfo
    leads_out: bool

    @property
    def is_hidden(self) -> bool:
        """Whether the member is hidden, in a hidden folder, or was added by macOS."""
        return not self.leads_out and (self.parts[0] == MACOS or any(part[0] == "." for part in self.parts))

    @property
    def is_file(self) -> bool:
        """Whether the member is a file that can be unpacked."""
        return not self.leads_out and self.info.filename[-1:] not in ("/", "\\")

    @property
    def is_link(self) -> bool:
        """Whether the member is a symbolic link."""
        return stat.S_ISLNK(self.info.external_attr >> 16)

    @property
    def ending(self) -> str:
        """The extension of the member's name, in lower case."""
        return Path(self.parts[-1]).suffix.lower()


class _Careful(io.BufferedReader):
    """A file that limits each read, because zipfile reads a zip's whole list of files before it checks the list."""

    most = 0
    """The most bytes of a read."""
    corrects_names = False
    """Whether the list of files is read again, because a name in it is declared as UTF-8 and is not UTF-8."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = self.most
        if size > self.most:
            raise zipfile.BadZipFile
        data = super().read(size)
        return _corrected(data) if self.corrects_names else data


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """An open zip."""

    name: str
    """The name of the zip in messages."""
    file: zipfile.ZipFile
    members: tuple[Member, ...]
    hidden: tuple[Member, ...] = ()
    """Hidden files, and those that macOS adds. They are never unpacked."""

    def unpack(self, folder: Path, source_name: str, *, above: int = 0) -> None:
        """Write the files that a submission can consist of, without the first `above` folders of their paths.

        Raises `UsageError` if a file leads out of the zip, is encrypted or broken, or exceeds the limits.
        """
        kinds = self.kinds(source_name)
        left = MOST_TOTAL
        seen: set[tuple[str, ...]] = set()
        for member in self.members:
            self._check(member, seen, kinds)
            if member.is_file and member.ending in kinds:
                most = left if member.ending == ZIP else min(left, _MOST_FILE)
                left -= self._write(folder.joinpath(*member.parts[above:]), member, most + 1)
            if left < 0:
                raise UsageError(f"{self.name}: it unpacks to more than {MOST_TOTAL >> 20} MB")

    def unpack_one(self, member: Member, path: Path) -> None:
        """Write a file that is not a submission, such as a Gradescope export's list of submissions."""
        self._check(member, set(), (member.ending,))
        self._write(path, member, MOST_TOTAL)

    def kinds(self, source_name: str) -> tuple[str, ...]:
        """Return the extensions that a submission can consist of; archives only if no file is `source_name`."""
        kinds = (Path(source_name).suffix, ".h")
        has_source = any(member.parts[-1] == source_name for member in self.members)
        return kinds if has_source else (*kinds, ZIP, *ARCHIVES)

    def _check(self, member: Member, seen: set[tuple[str, ...]], kinds: tuple[str, ...]) -> None:
        shown = self._shown(member)
        if member.leads_out:
            raise UsageError(f"{self.name}: {shown} in the zip leads out of it, so nothing of it was unpacked")
        if len(member.parts) > _MOST_DEPTH:
            raise UsageError(f"{self.name}: in the zip a file is more than {_MOST_DEPTH} folders deep")
        seen.update(member.parts[:count] for count in range(1, len(member.parts) + 1))
        if len(seen) > _MOST_ENTRIES:
            raise UsageError(f"{self.name}: there are more than {_MOST_ENTRIES} files in the zip")
        if member.is_link and member.ending in (*kinds, ZIP):
            raise UsageError(f"{self.name}: {shown} in the zip is a symbolic link; submit the file itself")

    def _write(self, path: Path, member: Member, most: int) -> int:
        """Write at most `most` bytes and return their number. A larger file is extended to the size in the zip."""
        size = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for piece in self._pieces(member, most):
                    size += file.write(piece)
                if _MOST_FILE < size < member.info.file_size:
                    file.truncate(min(member.info.file_size, _MOST_TOLD))
        except OSError as error:
            if error.errno in MACHINE_ERRORS:
                raise no_room(path.parent, error) from error
            why = "there is another file of that name" if error.errno == errno.EEXIST else error.strerror
            raise UsageError(f"{self.name}: {self._shown(member)} in the zip cannot be unpacked: {why}") from None
        return size

    def _pieces(self, member: Member, most: int) -> Iterator[bytes]:
        if member.info.flag_bits & _ENCRYPTED:
            raise UsageError(f"{self.name}: the zip is encrypted; hand in one without a password")
        if member.info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UsageError(f"{self.name}: the zip uses an unusual compression; make an ordinary one")
        with _reporting_damage(self.name), self.file.open(member.info) as file:
            while most > 0 and (piece := file.read(min(most, _MOST_FILE))):
                most -= len(piece)
                yield piece

    @staticmethod
    def _shown(member: Member) -> str:
        return one_line(member.info.filename[:_MOST_SHOWN])


@contextlib.contextmanager
def opened(path: Path, name: str, *, of_class: bool = False) -> Iterator[Archive]:
    """Open a zip; messages use `name`. A zip `of_class` may be larger. Raises `UsageError`."""
    factor = _CLASS_FACTOR if of_class else 1
    try:
        descriptor = open_regular(path)
    except OSError as error:
        message = "it is a symbolic link" if error.errno == errno.ELOOP else f"it cannot be read: {error.strerror}"
        raise UsageError(f"{name}: {message}") from None
    with _Careful(io.FileIO(descriptor)) as reader:
        reader.most = factor * _MOST_READ
        with _reporting_damage(name):
            file = _listed(reader)
        with file:
            if len(file.filelist) > factor * _MOST_MEMBERS:
                raise UsageError(f"{name}: {_too_many(file, factor * _MOST_MEMBERS, of_class=of_class)}")
            members = [_member(info) for info in file.filelist]
            visible = tuple(member for member in members if member.parts and not member.is_hidden)
            hidden = tuple(member for member in members if member.parts and member.is_hidden)
            yield Archive(name=name, file=file, members=visible, hidden=hidden)


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor. Never waits. Raises `OSError` for anything else."""
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def _listed(reader: _Careful) -> zipfile.ZipFile:
    """Return the zip with its list of files. A name with a wrongly declared encoding does not stop the others."""
    try:
        return zipfile.ZipFile(reader)
    except UnicodeDecodeError:
        reader.corrects_names = True
        file = zipfile.ZipFile(reader)
        reader.corrects_names = False
        return file


def _corrected(listed: bytes) -> bytes:
    """Return a zip's list of files, corrected so that each name declared as UTF-8 is UTF-8. Other data is unchanged."""
    corrected = bytearray(listed)
    place = 0
    while corrected.startswith(b"PK\x01\x02", place) and place + _LISTED_BYTES <= len(corrected):
        (flags,) = struct.unpack_from("<H", corrected, place + 8)
        lengths = struct.unpack_from("<3H", corrected, place + 28)
        name = place + _LISTED_BYTES
        try:
            corrected[name : name + lengths[0]].decode()
        except UnicodeDecodeError:
            struct.pack_into("<H", corrected, place + 8, flags & ~_UTF8)
        place = name + sum(lengths)
    return bytes(corrected)


def _too_many(file: zipfile.ZipFile, most: int, *, of_class: bool) -> str:
    """Return the message that a zip lists too many files. For a class's zip it names the folder with the most files."""
    message = f"there are more than {most} files in the zip"
    if not of_class:
        return message
    folders = Counter("/".join(info.filename.split("/")[:2]) for info in file.filelist)
    ((name, count),) = folders.most_common(1)
    return f"{message}, {count} of them in {one_line(name[:_MOST_SHOWN])}; unpack it and write its folder instead"


@contextlib.contextmanager
def _reporting_damage(name: str) -> Iterator[None]:
    try:
        yield
    except (*_BROKEN, zlib.error, struct.error, OSError):
        raise UsageError(f"{name}: the zip is broken, so nothing of it could be unpacked") from None


def _member(info: zipfile.ZipInfo) -> Member:
    name = info.filename
    if not info.flag_bits & _UTF8:
        name = _undeclared(name)
    name = name.replace("\\", "/")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or re.match("[A-Za-z]:/", name) or ".." in parts[:1]:
        return Member(parts=(_short(f"({'_'.join(parts)})"),), info=info, leads_out=True)
    safe = parts[: parts.index("..")] if ".." in parts else parts
    return Member(parts=tuple(map(_short, safe)), info=info, leads_out=safe != parts)


def _undeclared(name: str) -> str:
    """Decode a name again whose encoding the zip does not declare: Python has decoded it with the encoding of DOS.

    Use UTF-8 (macOS) if the bytes are valid UTF-8, or GB2312 (Chinese Windows) if all letters beyond ASCII are then
    Chinese characters. Otherwise return the name unchanged.
    """
    with contextlib.suppress(UnicodeError):
        return name.encode("cp437").decode("utf-8")
    with contextlib.suppress(UnicodeError):
        chinese = name.encode("cp437").decode("gb2312")
        if all(letter.isascii() or _FIRST_HAN <= letter <= _LAST_HAN for letter in chinese):
            return chinese
    return name


def _short(name: str) -> str:
    """Return a name that is short enough for a file system: learning platforms append the student's own file name.

    The extension stays, and different names stay different.
    """
    data = name.encode(errors="replace")
    if len(data) <= _MOST_NAME:
        return name
    ending = Path(name).suffix[:8]
    return f"{data[: _MOST_NAME - 60].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:8]}{ending}"


def collect_zipped(path: Path, source_name: str, rule: str, *, name: str, nested: int = 0) -> Source:
    """Do what `collect` does for a submission, and unpack it first if it is a zip.

    If a submission has no file `source_name` but exactly one zip, that zip is unpacked too.

    Raises `UsageError` as `collect` does, and for a zip that cannot be unpacked.
    """
    if path.suffix.lower() == ZIP and path.is_file() and not path.is_symlink():
        if nested == _MOST_NESTED:
            raise UsageError(
                f"{name}: it is a zip in a zip in a zip; hand in {source_name}, or one zip that contains it"
            )
        with private_folder(None) as unpacked:
            with opened(path, name) as archive:
                archive.unpack(unpacked, source_name)
            return collect_zipped(unpacked, source_name, rule, name=name, nested=nested + 1)
    source = collect(path, source_name, rule, name=name)
    inner = _zips(path, source_name) if source.path is None else []
    if len(inner) > 1:
        listed = ", ".join(one_line(str(file.relative_to(path))) for file in inner[:5])
        raise UsageError(
            f"{name}: there is no {source_name} in it, and more than one zip: {listed}; keep only the right one"
        )
    inside = collect_zipped(inner[0], source_name, rule, name=name, nested=nested) if inner else source
    return source if source.is_unread and inside.path is None else inside


def was_unpacked(packed: Path, folder: Path, source_name: str) -> bool:
    """Whether a folder contains exactly the files of a zip. Only files that a submission can consist of count.

    Programs that unpack a zip keep or omit the only folder at its top. Raises `UsageError` or `OSError` if something
    cannot be read.
    """
    with opened(packed, str(packed)) as archive:
        kinds = archive.kinds(source_name)
        packed_files = {
            member.parts: (member.info.file_size, member.info.CRC)
            for member in archive.members
            if member.is_file and member.ending in kinds
        }
    files = _files(folder, source_name, kinds)
    expected = packed_files if files.keys() == packed_files.keys() else _without_top(packed_files)
    same_names = bool(expected) and files.keys() == expected.keys()
    return same_names and all(_is_same(files[parts], *expected[parts]) for parts in files)


def _without_top(files: dict[_Parts, tuple[int, int]]) -> dict[_Parts, tuple[int, int]]:
    """Return the files without the folder that contains all of them; {} if there is no such folder."""
    alone = len({parts[0] for parts in files}) == 1 and all(len(parts) > 1 for parts in files)
    return {parts[1:]: content for parts, content in files.items()} if alone else {}


def _files(folder: Path, source_name: str, kinds: tuple[str, ...]) -> dict[_Parts, Path]:
    """Return the visible files of these kinds below a folder, by their relative paths."""
    return {
        path.relative_to(folder).parts: path
        for level in levels_below(folder, source_name)
        for path in map(Path, level)
        if path.suffix.lower() in kinds and not path.name.startswith(".") and not path.is_dir()
    }


def _is_same(path: Path, size: int, checksum: int) -> bool:
    """Whether a file has this size and CRC-32."""
    with os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size != size or size > MOST_TOTAL:
            return False
        return zlib.crc32(file.read(size + 1)) == checksum


def _zips(folder: Path, source_name: str) -> list[Path]:
    """Return the zips on the shallowest level of a folder that contains zips."""
    for level in levels_below(folder, source_name):
        files = [entry for entry in level if entry.is_file(follow_symlinks=False)]
        zips = [entry for entry in files if entry.name.lower().endswith(ZIP) and not entry.name.startswith(".")]
        if zips:
            return sorted(map(Path, zips))
    return []
