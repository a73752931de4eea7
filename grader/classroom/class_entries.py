"""List the entries of a class: what lies at the top of its folder, of a Gradescope export, or of its one zip.

An entry is listed, whatever it is, before anything in it is read. So each of them ends as a submission or as a line
that says why it is none (discover.py), and a problem in one concerns no other.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path

from grader.classroom.zip_archive import MACOS, ZIP, Archive, Member, opened
from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.system.folders import private_folder

EXPORT = "submission_metadata.yml"
"""The list of submissions in a Gradescope export."""


class Kind(Enum):
    """What an entry is."""

    FOLDER = auto()
    FILE = auto()
    """Also a link to a file, and a pipe, a socket or a device."""
    UNKNOWN = auto()
    """It could be anything, such as a link that leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEntry:
    """One entry of a class."""

    name: str
    """Its name as it stands there: any bytes."""
    shown: str
    """Its path in messages, in one line."""
    kind: Kind
    trouble: str = ""
    """Why nothing of it can be read; empty when nothing is known against that."""
    filled: Callable[[], AbstractContextManager[Path]]
    """Yields its path; an entry of a zip is unpacked for as long as the context is open."""

    @property
    def is_hidden(self) -> bool:
        """Whether it is hidden, or added by macOS."""
        return self.name.startswith(".") or self.name == MACOS

    @property
    def is_zip(self) -> bool:
        """Whether it is named like a zip."""
        return self.kind is not Kind.FOLDER and Path(self.name).suffix.lower() == ZIP

    def may_be_submission(self, source_name: str) -> bool:
        """Whether it is a folder, a zip, a file with the extension of `source_name`, or unknown."""
        return self.kind is not Kind.FILE or self.is_zip or Path(self.name).suffix == Path(source_name).suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEntries:
    """All entries of a class."""

    shown: str
    """The path of the folder or the zip that holds them."""
    entries: Sequence[ClassEntry]
    around: Sequence[ClassEntry] = field(default=())
    """What lies beside the zip of the class, or beside the only folder that holds its entries."""

    @property
    def is_export(self) -> bool:
        """Whether it is an export of Gradescope."""
        return any(entry.name == EXPORT and entry.kind is Kind.FILE for entry in self.entries)


@contextlib.contextmanager
def listed(path: Path, source_name: str) -> Iterator[ClassEntries]:
    """Yield the entries of a class: of a folder or a zip, or of the only zip or export in a folder.

    Raises `UsageError` for a zip that cannot be opened, `OSError` for a folder that cannot be read.
    """
    if not path.is_dir():
        with _packed(path, source_name) as packed:
            yield packed
        return
    entries = _of_folder(path)
    visible = [entry for entry in entries if not entry.is_hidden]
    if len(visible) == 1 and _is_class(path / visible[0].name, source_name):
        with _packed(path / visible[0].name, source_name) as packed:
            yield replace(packed, around=[*_others(entries, visible[0]), *packed.around])
        return
    export = None if EXPORT in {entry.name for entry in entries} else _export(path, visible, source_name)
    if export is not None:
        inner = path / export.name
        yield ClassEntries(shown=str(inner), entries=_of_folder(inner), around=_others(entries, export))
    else:
        yield ClassEntries(shown=str(path), entries=entries)


def _others(entries: Iterable[ClassEntry], but: ClassEntry) -> list[ClassEntry]:
    return [entry for entry in entries if entry is not but]


def _export(path: Path, visible: Sequence[ClassEntry], source_name: str) -> ClassEntry | None:
    """Return the folder that is a Gradescope export, where it hides no submission: beside it is only its own zip."""
    possible = {entry.name for entry in visible if entry.may_be_submission(source_name)}
    with contextlib.suppress(OSError):
        for entry in visible:
            is_alone = entry.kind is Kind.FOLDER and possible <= {entry.name, f"{entry.name}{ZIP}"}
            if is_alone and (path / entry.name / EXPORT).is_file():
                return entry
    return None


def _of_folder(folder: Path) -> list[ClassEntry]:
    with os.scandir(folder) as entries:
        return sorted((_on_disk(folder / entry.name, entry) for entry in entries), key=lambda entry: entry.name)


def _on_disk(path: Path, entry: os.DirEntry[str]) -> ClassEntry:
    """Return an entry of a folder. Whoever made the folder made the links in it, so a link to a folder is followed."""
    kind, trouble = Kind.FILE, ""
    try:
        mode = entry.stat().st_mode
        if stat.S_ISDIR(mode):
            kind = Kind.FOLDER
        elif entry.is_symlink():
            trouble = "it is a symbolic link; put the file itself there"
        elif not stat.S_ISREG(mode):
            trouble = "it is not a regular file"
    except FileNotFoundError:
        kind, trouble = Kind.UNKNOWN, "the link is broken"
    except OSError as error:
        kind, trouble = Kind.UNKNOWN, f"it cannot be read: {error.strerror}"
    filled = partial(_as_it_lies, path)
    return ClassEntry(name=entry.name, shown=one_line(str(path)), kind=kind, trouble=trouble, filled=filled)


@contextlib.contextmanager
def _as_it_lies(path: Path) -> Iterator[Path]:
    yield path


def _is_class(path: Path, source_name: str) -> bool:
    """Whether a file is a zip with several submissions."""
    if path.suffix.lower() != ZIP or not path.is_file():
        return False
    try:
        with opened(path, str(path), of_class=True) as archive:
            top = _top(archive, source_name)
            files = [member for member in archive.members if member.is_file]
            ours = [
                member.parts[top is not None :]
                for member in files
                if member.parts[-1] == source_name or member.ending == ZIP
            ]
    except UsageError:
        return False  # reported when it is unpacked, as the zip of one student
    return len({parts[0] for parts in ours}) > 1 and (source_name,) not in ours


def _top(archive: Archive, source_name: str) -> str | None:
    """Return the folder in which everything is, if it is not a submission itself; else None."""
    files = [member for member in archive.members if member.is_file]
    inner = {member.parts[1] for member in files if len(member.parts) > 1}
    tops = {member.parts[0] for member in files}
    alone = len(tops) == 1 and all(len(member.parts) > 1 for member in files)
    return tops.pop() if alone and len(inner) > 1 and source_name not in inner else None


@contextlib.contextmanager
def _packed(packed: Path, source_name: str) -> Iterator[ClassEntries]:
    """Yield the entries of the zip of a class; each is unpacked when it is its turn."""
    with opened(packed, str(packed), of_class=True) as archive:
        top = _top(archive, source_name)
        above = 0 if top is None else 1
        inside: dict[str, list[Member]] = {}
        around: dict[str, list[Member]] = {}
        for member in (*archive.members, *archive.hidden):
            if member.leads_out or top in (None, member.parts[0]):
                if member.leads_out or len(member.parts) > above:
                    inside.setdefault(member.parts[min(above, len(member.parts) - 1)], []).append(member)
            else:
                around.setdefault(member.parts[0], []).append(member)
        entry = partial(_in_zip, archive, source_name=source_name)
        yield ClassEntries(
            shown=str(packed),
            entries=[entry(name, members, above=above) for name, members in sorted(inside.items())],
            around=[entry(name, members, above=0) for name, members in sorted(around.items())],
        )


def _in_zip(archive: Archive, name: str, members: Sequence[Member], *, above: int, source_name: str) -> ClassEntry:
    """Return the entry of a zip that has these members; it is in `above` folders."""
    only = members[0] if len(members) == 1 and len(members[0].parts) == above + 1 else None
    is_file = only is not None and only.is_file
    shown = one_line(f"{archive.name}/{name}")
    visible = tuple(member for member in members if not member.is_hidden)
    part = Archive(name=shown, file=archive.file, members=visible)

    @contextlib.contextmanager
    def filled() -> Iterator[Path]:
        with private_folder(None) as place:
            path = place / name
            if name == EXPORT and only is not None and only.is_file:
                part.unpack_one(only, path)
            else:
                part.unpack(place, source_name, above=above)
            if not path.exists():
                path.mkdir()
            yield path

    trouble = "it is a symbolic link; submit the file itself" if only is not None and only.is_link else ""
    kind = Kind.UNKNOWN if trouble else Kind.FILE if is_file else Kind.FOLDER
    return ClassEntry(name=name, shown=shown, kind=kind, trouble=trouble, filled=filled)
