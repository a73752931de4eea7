"""Find a class's submissions: a folder of repositories, files or zips, a Gradescope export, or one zip of all these.

The name of a submission is that of its folder, or of its file without the extension. Its students come from a roster
(CSV), otherwise from the export itself. Zips are unpacked one at a time into a private folder (zip_files.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from grader.assignment.source import Source
from grader.classroom.roster import Roster
from grader.classroom.submission_metadata import submitters
from grader.classroom.zip_files import EXPORT, ZIP, class_zip, collect_zipped, outlined, was_unpacked
from grader.core.errors import UsageError
from grader.core.record import Student
from grader.core.sanitize import one_line

__all__ = ["Submitted", "find_submissions"]

_Filled = Callable[[Path], AbstractContextManager[str]]
"""Makes a submission's path hold what was submitted while the context is open; yields the name to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A submission of a class. Without a source it cannot be graded, and `failure` says why."""

    name: str
    students: tuple[Student, ...] = ()
    source: Source | None = None
    failure: str = ""


def find_submissions(folder: Path, source_name: str, rule: str, roster: Roster | None = None) -> list[Submitted]:
    """Return all submissions in a folder or a zip, in the order of their names.

    Raises `UsageError` when there are none, `ClassFileError` when the export's list cannot be read.
    """
    if not folder.is_dir() and not (folder.is_file() and folder.suffix.lower() == ZIP):
        said = "that is a file" if folder.exists() else "there is no such folder"
        raise UsageError(f"{folder}: {said}; write the folder, or the zip, that holds the class's submissions")
    try:
        packed = class_zip(folder, source_name)
        if packed is None:
            return _found(folder, str(folder), _as_it_lies, source_name=source_name, rule=rule, roster=roster)
        with outlined(packed, source_name) as (made, filled):
            return _found(made, str(packed), filled, source_name=source_name, rule=rule, roster=roster)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: we may not read it: {error.strerror}") from None


def _found(
    folder: Path, shown: str, filled: _Filled, *, source_name: str, rule: str, roster: Roster | None
) -> list[Submitted]:
    place = _export(folder)
    found = _entries(place or folder, shown, source_name, exported=place is not None)
    who = roster or (submitters(place / EXPORT) if place is not None else None)
    students = who.students(found) if who is not None else {}
    return [
        _submitted(name, path, students.get(name, ()), filled, source_name=source_name, rule=rule)
        for name, path in found.items()
    ]


@contextlib.contextmanager
def _as_it_lies(path: Path) -> Iterator[str]:
    yield one_line(str(path))


def _export(folder: Path) -> Path | None:
    """Return the folder of a Gradescope export: this one, or the only one in it, as when unzipped; else None."""
    if (folder / EXPORT).is_file():
        return folder
    inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return inner[0] if len(inner) == 1 and (inner[0] / EXPORT).is_file() else None


def _entries(folder: Path, shown: str, source_name: str, *, exported: bool) -> dict[str, Path]:
    """Return the submissions' paths by their names."""
    ending = Path(source_name).suffix
    seen = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "__MACOSX")
    if exported:
        seen = [path for path in seen if path.name.startswith("submission_") and path.is_dir()]
    files = [path for path in seen if path.suffix == ending and not path.is_dir()]
    if [path.name for path in files] == [source_name]:
        step = "unpack it and grade run its folder" if shown.lower().endswith(ZIP) else f"grade run {shown}"
        raise UsageError(f"{shown}: it holds {source_name} itself, so it is one submission: {step}")
    zips = [path for path in seen if path.suffix.lower() == ZIP and not path.is_dir()]
    files += [path for path in zips if not was_unpacked(path, {one.name for one in seen})]
    folders = [path for path in seen if path.is_dir()]
    found: dict[str, Path] = {}
    for path in [*folders, *files]:
        short, full = one_line(path.stem if path in files else path.name), one_line(path.name)
        names = chain([short, full], (f"{full} ({number})" for number in count(2)))
        found[next(name for name in names if name not in found)] = path
    if not found:
        raise UsageError(f"{shown}: there is no submission in it: no folder, no zip, and no file that ends in {ending}")
    return dict(sorted(found.items()))


def _submitted(
    name: str, path: Path, students: Sequence[Student], filled: _Filled, *, source_name: str, rule: str
) -> Submitted:
    try:
        with filled(path) as shown:
            source = collect_zipped(path, source_name, rule, name=shown)
    except UsageError as error:
        return Submitted(name=name, students=tuple(students), failure=str(error))
    return Submitted(name=name, students=tuple(students), source=source)
