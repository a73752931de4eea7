"""Find a class's submissions: a folder of repositories, files or zips, a Gradescope export, or one zip of all these.

Each entry ends as a submission, or is skipped for a reason; none hides another one. The name of a submission is that of
its folder, or of its file without the extension. Its students come from a roster (CSV), otherwise from the export
itself. Zips are unpacked one at a time into a private folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from grader.assignment.source import Source
from grader.classroom.class_entries import EXPORT, ClassEntries, ClassEntry, Kind, listed
from grader.classroom.roster import Roster
from grader.classroom.submission_metadata import submitters
from grader.classroom.zip_archive import ZIP
from grader.classroom.zip_files import collect_zipped, was_unpacked
from grader.core.errors import UsageError
from grader.core.record import Student
from grader.core.sanitize import one_line
from grader.system.resources import MACHINE_ERRORS, no_room

HIDDEN = "hidden, or added by macOS"
"""The reason for which most entries are skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A submission of a class. Without a source it cannot be graded, and `failure` says why."""

    name: str
    students: tuple[Student, ...] = ()
    source: Source | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """An entry that is no submission."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """What there is in a class: each entry is in one of these lists."""

    submissions: tuple[Submitted, ...]
    """In the order of their names."""
    skipped: tuple[Skipped, ...]


def find_submissions(folder: Path, source_name: str, rule: str, roster: Roster | None = None) -> Discovered:
    """Return all submissions in a folder or a zip, and what else there is.

    Raises `UsageError` when there is no submission, `ClassFileError` when the export's list cannot be read, `OutOfRoom`
    when a zip cannot be unpacked for want of room.
    """
    if not folder.is_dir() and not (folder.is_file() and folder.suffix.lower() == ZIP):
        message = "that is a file" if folder.exists() else "there is no such folder"
        raise UsageError(f"{folder}: {message}; write the folder, or the zip, that holds the class's submissions")
    try:
        with listed(folder, source_name) as entries:
            return _discovered(entries, source_name, rule, roster)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: permission denied: {error.strerror}") from None


def _discovered(entries: ClassEntries, source_name: str, rule: str, roster: Roster | None) -> Discovered:
    reasons = list(_reasons(entries, source_name))
    named = _named([entry for entry, reason in reasons if not reason], source_name)
    _require_class(entries, named, source_name)
    exported = _listed(entries) if roster is None and entries.is_export else None
    people = roster or exported
    stems = [one_line(Path(entry.name).stem) for entry, _ in reasons]
    listed_names = [name for name, _ in exported.rows] if exported is not None else []
    students = people.students([*named, *stems, *listed_names]) if people is not None else {}
    failures: dict[str, str] = {}
    skipped = []
    for (entry, reason), stem in zip(reasons, stems, strict=True):
        if reason and not entry.is_hidden and students.get(stem) and stem not in {*named, *failures}:
            failures[stem] = f"{entry.shown}: {reason}"
        elif reason:
            skipped.append(Skipped(name=one_line(entry.name), reason=reason))
    for name in listed_names:
        if name not in named:
            failures.setdefault(name, f"{one_line(entries.shown)}: {EXPORT} lists it, but there is no such folder")
    submissions = [
        _submitted(name, entry, students.get(name, ()), source_name=source_name, rule=rule)
        for name, entry in named.items()
    ]
    submissions += [
        Submitted(name=name, students=tuple(students.get(name, ())), failure=failure)
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
    """Yield each entry with the reason why it is no submission; "" for a submission."""
    folders = {entry.name: entry for entry in entries.entries if entry.kind is Kind.FOLDER}
    for entry in entries.entries:
        beside = folders.get(Path(entry.name).stem) if entry.is_zip else None
        if entry.is_hidden:
            yield entry, HIDDEN
        elif entries.is_export and entry.name == EXPORT:
            yield entry, "the export's list of submissions"
        elif entries.is_export and not (entry.name.startswith("submission_") and entry.kind is Kind.FOLDER):
            yield entry, "no folder of a submission, as an export names them"
        elif not entry.may_be_submission(source_name):
            yield entry, f"no folder, no zip, and no file that ends in {Path(source_name).suffix}"
        elif beside is not None and _was_unpacked(entry, beside, source_name):
            yield entry, "unpacked already: the folder of its name has the same files"
        else:
            yield entry, ""
    for entry in entries.around:
        yield entry, HIDDEN if entry.is_hidden else "beside the folder or zip that holds the class"


def _was_unpacked(packed: ClassEntry, beside: ClassEntry, source_name: str) -> bool:
    if packed.trouble:
        return False
    try:
        with packed.filled() as path, beside.filled() as folder:
            return was_unpacked(path, folder, source_name)
    except (UsageError, OSError):
        return False  # reported when it is unpacked


def _named(entries: Iterable[ClassEntry], source_name: str) -> dict[str, ClassEntry]:
    """Return the entries by the names of their submissions; of several with one name, a folder has it first."""
    named: dict[str, ClassEntry] = {}
    for entry in sorted(entries, key=lambda entry: (entry.kind is not Kind.FOLDER, entry.name)):
        path = Path(entry.name)
        is_file = entry.is_zip or (entry.kind is not Kind.FOLDER and path.suffix == Path(source_name).suffix)
        full = one_line(entry.name)
        names = chain([one_line(path.stem) if is_file else full, full], (f"{full} ({number})" for number in count(2)))
        named[next(name for name in names if name not in named)] = entry
    return named


def _require_class(entries: ClassEntries, named: Mapping[str, ClassEntry], source_name: str) -> None:
    """Raise `UsageError` when the folder is one submission, because the only source file in it has the right name."""
    sources = [entry.name for entry in named.values() if entry.kind is Kind.FILE and not entry.is_zip]
    if sources == [source_name]:
        shown = entries.shown
        step = "unpack it and grade run its folder" if shown.lower().endswith(ZIP) else f"grade run {shown}"
        raise UsageError(f"{shown}: it holds {source_name} itself, so it is one submission: {step}")


def _listed(entries: ClassEntries) -> Roster:
    """Return the students of an export, by submission. Raises `ClassFileError`."""
    (export,) = (entry for entry in entries.entries if entry.name == EXPORT)
    with export.filled() as path:
        return submitters(path)


def _submitted(name: str, entry: ClassEntry, students: Sequence[Student], *, source_name: str, rule: str) -> Submitted:
    source, failure = None, f"{entry.shown}: {entry.trouble}"
    try:
        if not entry.trouble:
            with entry.filled() as path:
                source, failure = collect_zipped(path, source_name, rule, name=entry.shown), ""
    except UsageError as error:
        failure = one_line(str(error))
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            raise no_room(Path(error.filename or entry.shown), error) from error
        failure = f"{entry.shown}: cannot be read: {error.strerror}"
    return Submitted(name=name, students=tuple(students), source=source, failure=failure)
