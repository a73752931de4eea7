"""Find a class's submissions: a folder of repositories, files or zips, a Gradescope export, or one zip of all these.

The entries of a class are the files and folders at the top of its folder, of an export, or of its only zip. Every entry
is listed before anything in it is read. Each entry becomes a submission or is skipped for a reason. No entry hides
another one, and a problem in one does not affect the others.

The name of a submission is that of its folder, or of its file without the extension. Its students come from a roster
(CSV), otherwise from the export. Zips are unpacked one at a time into a private folder.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import chain, count
from pathlib import Path

from grader.assignment.source import ARCHIVES, NOT_OPENED, Source
from grader.classroom.roster import Roster, submitters
from grader.classroom.zip_archive import MACOS, ZIP, Archive, Member, collect_zipped, opened, was_unpacked
from grader.core.errors import UsageError
from grader.core.record import Student
from grader.core.sanitize import one_line
from grader.system.folders import private_folder
from grader.system.resources import MACHINE_ERRORS, no_room

EXPORT = "submission_metadata.yml"
"""The list of submissions in a Gradescope export."""
HIDDEN = "hidden, or added by macOS"
"""The most frequent reason for which an entry is skipped."""


class EntryKind(Enum):
    """What an entry is."""

    FOLDER = auto()
    FILE = auto()
    """A file; also a link to a file, a pipe, a socket or a device."""
    UNKNOWN = auto()
    """An entry whose kind cannot be found out, such as a broken link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEntry:
    """One entry of a class."""

    name: str
    """The name of the entry, which may contain any bytes."""
    shown: str
    """The path of the entry in messages, in one line."""
    kind: EntryKind
    trouble: str = ""
    """Why the entry cannot be read; empty if no reason is known."""
    filled: Callable[[], AbstractContextManager[Path]]
    """Yields the path of the entry. An entry of a zip is unpacked only while the context is open."""

    @property
    def is_hidden(self) -> bool:
        """Whether the entry is hidden, or was added by macOS."""
        return self.name.startswith(".") or self.name == MACOS

    @property
    def is_zip(self) -> bool:
        """Whether the entry has the name of a zip."""
        return self.kind is not EntryKind.FOLDER and Path(self.name).suffix.lower() == ZIP

    @property
    def is_archive(self) -> bool:
        """Whether the entry has the name of an archive of a kind that is never opened."""
        return self.kind is EntryKind.FILE and Path(self.name).suffix.lower() in ARCHIVES

    @property
    def stem(self) -> str:
        """The name of the entry without the extension, in one line."""
        stem = one_line(Path(self.name).stem)
        return stem.removesuffix(".tar") if self.is_archive else stem

    def may_be_submission(self, source_name: str) -> bool:
        """Whether the entry is a folder, a zip, a file with the extension of `source_name`, or of unknown kind."""
        return self.kind is not EntryKind.FILE or self.is_zip or Path(self.name).suffix == Path(source_name).suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEntries:
    """All entries of a class."""

    shown: str
    """The path of the folder or the zip that holds them."""
    entries: Sequence[ClassEntry]
    around: Sequence[ClassEntry] = ()
    """The entries next to the zip of the class, or next to the only folder that contains its entries."""

    @property
    def is_export(self) -> bool:
        """Whether the folder or zip is an export of Gradescope."""
        return any(entry.name == EXPORT and entry.kind is EntryKind.FILE for entry in self.entries)


@contextlib.contextmanager
def listed(path: Path, source_name: str, roster: Roster | None = None) -> Iterator[ClassEntries]:
    """Yield the entries of a class in a folder or a zip, or in the only zip or export in this folder.

    Raises `UsageError` for a zip that cannot be opened, `OSError` for a folder that cannot be read.
    """
    if not path.is_dir():
        with _packed(path, source_name) as packed:
            yield packed
        return
    entries = _of_folder(path)
    visible = [entry for entry in entries if not entry.is_hidden]
    of_student = roster is not None and len(visible) == 1 and any(roster.students([visible[0].stem]).values())
    if len(visible) == 1 and not of_student and _is_class(path / visible[0].name, source_name):
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
    """Return the folder that is a Gradescope export; None if anything else but its zip may be a submission."""
    possible = {entry.name for entry in visible if entry.may_be_submission(source_name)}
    with contextlib.suppress(OSError):
        for entry in visible:
            is_alone = entry.kind is EntryKind.FOLDER and possible <= {entry.name, f"{entry.name}{ZIP}"}
            if is_alone and (path / entry.name / EXPORT).is_file():
                return entry
    return None


def _of_folder(folder: Path) -> list[ClassEntry]:
    with os.scandir(folder) as entries:
        return sorted((_on_disk(folder / entry.name, entry) for entry in entries), key=lambda entry: entry.name)


def _on_disk(path: Path, entry: os.DirEntry[str]) -> ClassEntry:
    """Return an entry of a folder. A link to a folder is followed: the instructor made the links in this folder."""
    kind, trouble = EntryKind.FILE, ""
    try:
        mode = entry.stat().st_mode
        if stat.S_ISDIR(mode):
            kind = EntryKind.FOLDER
        elif entry.is_symlink():
            trouble = "it is a symbolic link; put the file itself there"
        elif not stat.S_ISREG(mode):
            trouble = "it is not a regular file"
    except FileNotFoundError:
        kind, trouble = EntryKind.UNKNOWN, "the link is broken"
    except OSError as error:
        kind, trouble = EntryKind.UNKNOWN, f"it cannot be read: {error.strerror}"
    shown = one_line(str(path))
    return ClassEntry(
        name=entry.name, shown=shown, kind=kind, trouble=trouble, filled=lambda: contextlib.nullcontext(path)
    )


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
        return False  # the reason is reported when it is unpacked as the zip of one student
    return len({parts[0] for parts in ours}) > 1 and (source_name,) not in ours


def _top(archive: Archive, source_name: str) -> str | None:
    """Return the name of the only folder at the top of a zip; None without such a folder, or if it is a submission."""
    files = [member for member in archive.members if member.is_file]
    inner = {member.parts[1] for member in files if len(member.parts) > 1}
    tops = {member.parts[0] for member in files}
    alone = len(tops) == 1 and all(len(member.parts) > 1 for member in files)
    return tops.pop() if alone and len(inner) > 1 and source_name not in inner else None


@contextlib.contextmanager
def _packed(packed: Path, source_name: str) -> Iterator[ClassEntries]:
    """Yield the entries of the zip of a class. Each entry is unpacked when it is needed."""
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
    """Return the entry of a zip that consists of these members, below `above` folders."""
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
    kind = EntryKind.UNKNOWN if trouble else EntryKind.FILE if is_file else EntryKind.FOLDER
    return ClassEntry(name=name, shown=shown, kind=kind, trouble=trouble, filled=filled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A submission of a class. Without a source it cannot be graded, and `failure` says why."""

    name: str
    students: tuple[Student, ...] = ()
    source: Source | None = None
    failure: str = ""
    is_absent: bool = False
    """Whether an export lists the submission, but does not contain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """An entry that is not a submission."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """The entries of a class. Each entry is in one of these two lists."""

    submissions: tuple[Submitted, ...]
    """Sorted by name."""
    skipped: tuple[Skipped, ...]


def find_submissions(folder: Path, source_name: str, rule: str, roster: Roster | None = None) -> Discovered:
    """Return all submissions in a folder or a zip, and the entries that are skipped.

    Raises `UsageError` if there is no submission, `ClassFileError` if the export's list cannot be read, `OutOfRoom` if
    there is no room to unpack a zip.
    """
    if not folder.is_dir() and not (folder.is_file() and folder.suffix.lower() == ZIP):
        message = "that is a file" if folder.exists() else "there is no such folder"
        raise UsageError(f"{folder}: {message}; write the folder, or the zip, that contains the class's submissions")
    try:
        with listed(folder, source_name, roster) as entries:
            return _discovered(entries, source_name, rule, roster)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot be read: {error.strerror}") from None


def _discovered(entries: ClassEntries, source_name: str, rule: str, roster: Roster | None) -> Discovered:
    reasons = list(_reasons(entries, source_name))
    named = _named([entry for entry, reason in reasons if not reason], source_name)
    _require_class(entries, named, source_name)
    exported = _listed(entries) if roster is None and entries.is_export else None
    people = roster or exported
    stems = [entry.stem for entry, _ in reasons]
    listed_names = [name for name, _ in exported.rows] if exported is not None else []
    students = people.students([*named, *stems, *listed_names]) if people is not None else {}
    failures: dict[str, str] = {}
    skipped = []
    for (entry, reason), stem in zip(reasons, stems, strict=True):
        if reason and not entry.is_hidden and students.get(stem) and stem not in {*named, *failures}:
            failures[stem] = f"{entry.shown}: {reason}"
        elif reason:
            skipped.append(Skipped(name=one_line(entry.name), reason=reason))
    absent = set(listed_names) - {*named, *failures}
    failures |= dict.fromkeys(absent, f"{one_line(entries.shown)}: {EXPORT} lists it, but there is no such folder")
    submissions = [
        _submitted(name, entry, students.get(name, ()), source_name=source_name, rule=rule)
        for name, entry in named.items()
    ]
    submissions += [
        Submitted(name=name, students=students.get(name, ()), failure=failure, is_absent=name in absent)
        for name, failure in failures.items()
    ]
    if not submissions:
        ending = Path(source_name).suffix
        message = f"there is no submission in it: no folder, no zip, and no file that ends in {ending}"
        raise UsageError(f"{entries.shown}: {message}")
    return Discovered(
        submissions=tuple(sorted(submissions, key=lambda submission: submission.name)), skipped=tuple(skipped)
    )


def _reasons(entries: ClassEntries, source_name: str) -> Iterator[tuple[ClassEntry, str]]:
    """Yield each entry with the reason why it is not a submission; "" for a submission."""
    folders = {entry.name: entry for entry in entries.entries if entry.kind is EntryKind.FOLDER}
    for entry in entries.entries:
        beside = folders.get(entry.stem) if entry.is_zip or entry.is_archive else None
        if entry.is_hidden:
            yield entry, HIDDEN
        elif entries.is_export and entry.name == EXPORT:
            yield entry, "the export's list of submissions"
        elif entries.is_export and not (entry.name.startswith("submission_") and entry.kind is EntryKind.FOLDER):
            yield entry, "not a submission's folder, as an export names them"
        elif beside is not None and entry.is_archive:
            yield entry, "an archive that is not opened, next to the folder of its name"
        elif not (entry.is_archive or entry.may_be_submission(source_name)):
            yield entry, f"not a folder, a zip, or a file that ends in {Path(source_name).suffix}"
        elif beside is not None and _was_unpacked(entry, beside, source_name):
            yield entry, "unpacked already: the folder of its name has the same files"
        else:
            yield entry, ""
    for entry in entries.around:
        yield entry, HIDDEN if entry.is_hidden else "next to the folder or zip that holds the class"


def _was_unpacked(packed: ClassEntry, beside: ClassEntry, source_name: str) -> bool:
    if packed.trouble:
        return False
    try:
        with packed.filled() as path, beside.filled() as folder:
            return was_unpacked(path, folder, source_name)
    except (UsageError, OSError):
        return False  # then it is a submission of its own, and the reason is reported when it is unpacked


def _named(entries: Iterable[ClassEntry], source_name: str) -> dict[str, ClassEntry]:
    """Map names of submissions to entries. If several entries have one name, a folder keeps the name."""
    named: dict[str, ClassEntry] = {}
    for entry in sorted(entries, key=lambda entry: (entry.kind is not EntryKind.FOLDER, entry.name)):
        has_ending = entry.is_zip or entry.is_archive or Path(entry.name).suffix == Path(source_name).suffix
        is_file = entry.kind is not EntryKind.FOLDER and has_ending
        full = one_line(entry.name)
        names = chain([entry.stem if is_file else full, full], (f"{full} ({number})" for number in count(2)))
        named[next(name for name in names if name not in named)] = entry
    return named


def _require_class(entries: ClassEntries, named: Mapping[str, ClassEntry], source_name: str) -> None:
    """Raise `UsageError` if the folder is one submission: its only source file has the name of a submitted file."""
    sources = [
        entry.name
        for entry in named.values()
        if entry.kind is EntryKind.FILE and not (entry.is_zip or entry.is_archive)
    ]
    if sources == [source_name]:
        shown = entries.shown
        step = "unpack it and grade run its folder" if shown.lower().endswith(ZIP) else f"grade run {shown}"
        raise UsageError(f"{shown}: it contains {source_name} itself, so it is one submission: {step}")


def _listed(entries: ClassEntries) -> Roster:
    """Return the students of an export, by submission. Raises `ClassFileError` if its list of submissions is wrong."""
    (export,) = (entry for entry in entries.entries if entry.name == EXPORT)
    with export.filled() as path:
        return submitters(path)


def _submitted(name: str, entry: ClassEntry, students: Sequence[Student], *, source_name: str, rule: str) -> Submitted:
    trouble = f"{NOT_OPENED} into a folder of its name" if entry.is_archive and not entry.trouble else entry.trouble
    source, failure = None, f"{entry.shown}: {trouble}"
    try:
        if not trouble:
            with entry.filled() as path:
                collected = collect_zipped(path, source_name, rule, name=entry.shown)
            # an unread file may be right, so it never gets a 0
            unread = collected.finding if collected.is_unread else None
            source, failure = (collected, "") if unread is None else (None, f"{entry.shown}: {unread.message}")
    except UsageError as error:
        failure = one_line(str(error))
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            raise no_room(Path(error.filename or entry.shown), error) from error
        failure = f"{entry.shown}: cannot be read: {error.strerror}"
    return Submitted(name=name, students=tuple(students), source=source, failure=failure)
