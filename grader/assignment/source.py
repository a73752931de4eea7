"""Find the file to grade: a path is the file itself, or a folder that contains it at any depth.

Below the given path no link is followed, in any part of a path, and a file is checked only after it was opened. So a
person who swaps files during the search cannot make the grader read a file of somebody else.

Bundles for students contain the grader, and with it the skeleton that students begin with. A copy of the grader is
recognised by one of its files. No file in it is a submission, even if the student's own file is deeper.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from grader.assignment.samples import is_patched, program_of
from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.core.verdict import Finding, Tool, Verdict

_MOST_BYTES = 1 << 20
_MOST_ENTRIES = 20_000
_MOST_NAMED = 5
_MOST_HEADERS = 20
_MARK = "/runtime/protocol.py"
"""This file in a folder `grader` identifies a copy of the grader."""
_LINK = "is a symbolic link; submit the file itself"
_POINTER = "is only a pointer of Git LFS; submit the file itself (`git lfs pull` fetches it)"
_UTF_16 = "is saved as UTF-16, which compilers do not read; save it as UTF-8 (in most editors: Save with Encoding)"
ARCHIVES = frozenset({".gz", ".tgz", ".tar", ".bz2", ".xz", ".7z", ".rar"})
"""The extensions of archives that are never opened."""
NOT_OPENED = "an archive of this kind is not opened; unpack it"
_ARCHIVES = {
    b"PK\x03\x04": "is a zip archive and no source; unpack it, and submit the file in it",
    b"\x1f\x8b": "is a gzip archive and no source; unpack it, and submit the file in it",
    b"7z\xbc\xaf": "is a 7z archive and no source; unpack it, and submit the file in it",
    b"Rar!": "is a RAR archive and no source; unpack it, and submit the file in it",
}
_NO_SOURCES = {
    **_ARCHIVES,
    b"\x7fELF": "is a compiled program and no source; submit the text that it was made of",
    b"%PDF-": "is a PDF and no source; submit the text itself",
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    rb"\{\\rtf": "is a rich text document and no source; save it as plain text",
    rb"(?i)\s*<(!doctype html|html)\b": "is a web page and no source; save the file itself, on GitHub with Raw",
    rb'\{\s*"(cells|metadata|nbformat)":': "is a Jupyter notebook and no source; export its code to a file",
    rb"version https://git-lfs\.github\.com/": _POINTER,
}
"""The beginnings of files that are certainly not source, as patterns, and what the message says about them."""
_NEVER_WAIT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

_Levels = list[list[os.DirEntry[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A submission's source, or the finding that says why there is no source."""

    name: str
    file: str = ""
    """The path of the source in the folder `name`; empty if `name` is the file itself, or there is no file."""
    path: Path | None = None
    content: bytes = b""
    own_headers: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    finding: Finding | None = None
    is_unread: bool = False
    """Whether there is only a link, a pointer or an archive, whose content was not read and may be right."""

    @property
    def sha256(self) -> str:
        """The SHA-256 hash of the content; empty if it could not be read."""
        return hashlib.sha256(self.content).hexdigest() if self.finding is None else ""


def collect(path: Path, source_name: str, rule: str, *, name: str = "") -> Source:
    """Read the submission at `path`. A mistake in the submission is a finding.

    Messages call the submission `name`, or `path` if `name` is empty. `rule` is the rule that a finding breaks.

    Raises `UsageError` if `path` does not exist or cannot be read, or has several source files at the least depth.
    """
    name = name or _readable(path)
    try:
        if path.is_symlink() and not path.exists():
            raise UsageError(f"{name}: the link is broken")
        if not stat.S_ISDIR(path.stat().st_mode):
            return _read(Source(name=name, path=path), path.parent, source_name=source_name, rule=rule)
        if is_patched(path):
            return Source(name=name, file=source_name, content=program_of(path, source_name))
        levels, graders = _without_graders(list(levels_below(path, source_name)))
        places = [
            [Path(entry) for entry in level if entry.name == source_name and not entry.is_dir(follow_symlinks=False)]
            for level in levels
        ]
        nearest, *deeper = [level for level in places if level] or [[]]
        if not nearest:
            entries = list(chain(*levels))
            archives = [Path(entry) for entry in entries if _is_archive(entry)]
            message = _none_found(path, source_name, entries, archives) + _where_to(path, source_name, graders)
            return Source(name=name, finding=_finding(rule, message), is_unread=bool(archives))
        if len(nearest) > 1:
            listed = ", ".join(_some(path, nearest))
            raise UsageError(f"{name}: several files can be graded: {listed}; give the path of one of them")
        notes = tuple(f"not graded: {ignored}" for ignored in _some(path, list(chain(*deeper))))
        file = _readable(nearest[0].relative_to(path))
        source = Source(name=name, file=file, path=nearest[0], notes=notes)
        return _read(source, path, source_name=source_name, rule=rule)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{name}: {missing(source_name)}") from None
    except PermissionError as error:
        raise UsageError(f"{_readable(Path(error.filename or path))}: permission denied") from None
    except OSError as error:  # such as a name that is too long or a failing disk; never a score of 0
        raise UsageError(f"{name}: cannot be read: {error.strerror}") from None


def levels_below(folder: Path, source_name: str) -> Iterator[list[os.DirEntry[str]]]:
    """Yield all entries below a folder, level by level, the shallowest level first.

    Links to folders and hidden folders are not entered. Raises `OSError` for a folder that cannot be read, because the
    file could be in it, and `UsageError` if there are too many entries.
    """
    folders = [str(folder)]
    seen = 0
    while folders:
        level: list[os.DirEntry[str]] = []
        for parent in folders:
            with os.scandir(parent) as entries:
                level += sorted(islice(entries, _MOST_ENTRIES + 1), key=lambda entry: entry.name)
            if seen + len(level) > _MOST_ENTRIES:
                raise UsageError(
                    f"{_readable(folder)}: there are more than {_MOST_ENTRIES} files in it; "
                    f"write the path of {source_name or 'the file'} itself"
                )
        yield level
        seen += len(level)
        folders = [
            entry.path for entry in level if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
        ]


def nearest_of(folder: Path, names: Collection[str]) -> set[str]:
    """Return those of `names` on the shallowest level below `folder` that has any; else all names on all levels.

    Raises `UsageError` if a folder cannot be read.
    """
    try:
        levels = [{entry.name for entry in level} for level in _without_graders(list(levels_below(folder, "")))[0]]
    except OSError as error:
        raise _unreadable(error, folder) from None
    return next((level & set(names) for level in levels if level & set(names)), set().union(*levels))


def missing(source_name: str) -> str:
    """Return the message for a path that does not exist."""
    return f"no such file or folder; give the path of {source_name} or its folder"


def names_below(folder: Path) -> set[str]:
    """Return the names of all files below `folder`, the folder of a class.

    Folders that cannot be read are skipped, and any number of files is allowed: one student must not stop the others. A
    link in the class's own folder is followed. Raises `UsageError` if that folder cannot be read.
    """
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise _unreadable(error, folder) from None
    for top in [name for name in names if not name.startswith(".")]:
        for place, folders, files in os.walk(folder / top):
            if place.endswith("/grader") and Path(f"{place}{_MARK}").exists():
                folders.clear()
            else:
                names.update(folders, files)
                folders[:] = [name for name in folders if not name.startswith(".")]
    return names


def _unreadable(error: OSError, folder: Path) -> UsageError:
    return UsageError(f"{_readable(Path(error.filename or folder))}: cannot be read: {error.strerror}")


def _without_graders(levels: _Levels) -> tuple[_Levels, list[str]]:
    """Return the entries without those in copies of the grader, and the paths of these copies."""
    files = (entry for entry in chain(*levels) if entry.name == "protocol.py" and entry.is_file(follow_symlinks=False))
    graders = [entry.path.removesuffix(_MARK) for entry in files if entry.path.endswith(f"/grader{_MARK}")]
    inside = tuple(f"{grader}/" for grader in graders)
    return [[entry for entry in level if not entry.path.startswith(inside)] for level in levels], graders


def _where_to(folder: Path, source_name: str, graders: Sequence[str]) -> str:
    """Return advice for a user who may think that the bundle's skeleton is graded; "" without a copy of the grader."""
    if not graders:
        return ""
    ours = _readable(Path(graders[0]).relative_to(folder))
    return (
        f". Put your file at the top of the folder: {ours} belongs to the grader, "
        f"and {source_name} there is never graded"
    )


def _read(source: Source, folder: Path, *, source_name: str, rule: str) -> Source:
    """Read the file, which is below `folder`, and the student's headers next to it."""
    path = source.path
    assert path is not None
    try:
        with _entered(folder, path.parent.relative_to(folder)) as place:
            content = _content(path.name, place)
            if isinstance(content, str):
                is_unread = content in (_LINK, _POINTER, *_ARCHIVES.values())
                return replace(source, finding=_finding(rule, f"{source_name} {content}"), is_unread=is_unread)
            return replace(source, content=content, own_headers=_headers(place))
    except OSError as error:
        error.filename = str(path)
        raise


@contextlib.contextmanager
def _entered(folder: Path, inner: Path) -> Iterator[int]:
    """Yield a descriptor of the folder `inner`, a path relative to `folder`."""
    place = os.open(folder, _FOLDER)
    try:
        for part in inner.parts:
            outer, place = place, os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=place)
            os.close(outer)
        yield place
    finally:
        os.close(place)


def _content(name: str, place: int) -> bytes | str:
    """Return the content of a file in the folder `place`, or as text the reason why it is not accepted."""
    try:
        descriptor = os.open(name, _NEVER_WAIT, dir_fd=place)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return _LINK
        if error.errno == errno.ENXIO:
            return "is not a regular file"
        raise
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return "is a folder; submit a file with that name"
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    for beginning, what in _NO_SOURCES.items():
        if re.match(beginning, content):
            return what
    if len(content) > _MOST_BYTES:
        size = max(status.st_size, len(content))
        return f"is {size / 1e6:.1f} MB long; the limit is {_MOST_BYTES / 1e6:.1f} MB"
    return content or "is empty"


def _headers(place: int) -> dict[str, bytes]:
    """Return the student's headers next to the source. They are never used, but explain a failing build."""
    headers: dict[str, bytes] = {}
    with contextlib.suppress(OSError):
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place)
        try:
            with os.scandir(listed) as entries:
                names = sorted(entry.name for entry in islice(entries, _MOST_ENTRIES) if entry.name.endswith(".h"))
        finally:
            os.close(listed)
        for name in names[:_MOST_HEADERS]:
            with contextlib.suppress(OSError):
                content = _content(name, place)
                if isinstance(content, bytes):
                    headers[name] = content
    return headers


def _is_archive(entry: os.DirEntry[str]) -> bool:
    is_named_so = Path(entry.name).suffix.lower() in ARCHIVES and not entry.name.startswith(".")
    return is_named_so and not entry.is_dir(follow_symlinks=False)


def _none_found(folder: Path, source_name: str, entries: Iterable[os.DirEntry[str]], archives: Sequence[Path]) -> str:
    stem, suffix = Path(source_name).stem, Path(source_name).suffix
    similar = [
        Path(entry)
        for entry in entries
        if (entry.name.lower().endswith(suffix) or stem in entry.name.lower())
        and not entry.name.startswith(".")
        and entry.name != f"{stem}.h"  # the handout's header, which is rightly in many folders
    ]
    listed, packed = (", ".join(_some(folder, paths)) for paths in (similar, archives))
    other = f" (names are case-sensitive); it contains: {listed}" if similar else f", and no other {suffix} file"
    unpack = f"; {packed}: {NOT_OPENED}, and submit the file in it" if archives else ""
    return f"there is no {source_name} in the folder{other}{unpack}"


def _some(folder: Path, paths: Sequence[Path]) -> Iterator[str]:
    """Yield the first paths, relative to the folder, and the number of further paths."""
    for path in paths[:_MOST_NAMED]:
        yield _readable(path.relative_to(folder))
    if len(paths) > _MOST_NAMED:
        yield f"and {len(paths) - _MOST_NAMED} more"


def _finding(rule: str, message: str) -> Finding:
    return Finding(rule=rule, verdict=Verdict.COMPILE_ERROR, tool=Tool.BUILD, kind="source", message=message)


def _readable(path: Path) -> str:
    """Return a path as text on one line, whatever bytes it contains."""
    return one_line(str(path))
