"""Find a class's submissions: a folder of repositories, a flat folder of files, an unpacked Gradescope export.

Each submission is known by the name of its folder, or of its file without the ending. Who handed it in comes from a
roster (CSV), else from the export itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

from grader.collect import Source, collect
from grader.errors import UsageError
from grader.metadata import submitters
from grader.plain import one_line
from grader.record import Student
from grader.roster import Roster

__all__ = ["Handed", "gather"]

_EXPORT = "submission_metadata.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A submission of a class. Without a source it cannot be graded, and `trouble` says why."""

    name: str
    students: tuple[Student, ...] = ()
    source: Source | None = None
    trouble: str = ""


def gather(folder: Path, source_name: str, rule: str, roster: Roster | None = None) -> list[Handed]:
    """All submissions in a folder, in the order of their names.

    Raises `UsageError` when there are none, `ClassFileError` when the export's list cannot be read.
    """
    if not folder.is_dir():
        said = "that is a file" if folder.exists() else "there is no such folder"
        raise UsageError(f"{folder}: {said}; write the folder that holds the class's submissions")
    try:
        place = _export(folder)
        exported = place is not None
        place = place or folder
        found = _entries(place, source_name, exported=exported)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: we may not read it: {error.strerror}") from None
    who = roster or (submitters(place / _EXPORT) if exported else None)
    students = who.students(found) if who is not None else {}
    return [
        _handed(name, path, students.get(name, ()), source_name=source_name, rule=rule) for name, path in found.items()
    ]


def _export(folder: Path) -> Path | None:
    """Where a Gradescope export is: this folder, or the only one in it, as when a zip was unpacked there."""
    if (folder / _EXPORT).is_file():
        return folder
    inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return inner[0] if len(inner) == 1 and (inner[0] / _EXPORT).is_file() else None


def _entries(folder: Path, source_name: str, *, exported: bool) -> dict[str, Path]:
    """The submissions' paths by their names."""
    ending = Path(source_name).suffix
    seen = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if exported:
        seen = [path for path in seen if path.name.startswith("submission_") and path.is_dir()]
    files = [path for path in seen if path.suffix == ending and not path.is_dir()]
    folders = [path for path in seen if path.is_dir()]
    if [path.name for path in files] == [source_name]:
        raise UsageError(f"{folder}: it holds {source_name} itself, so it is one submission: grade run {folder}")
    found: dict[str, Path] = {}
    for path in [*folders, *files]:
        short, full = one_line(path.stem if path in files else path.name), one_line(path.name)
        names = chain([short, full], (f"{full} ({number})" for number in count(2)))
        found[next(name for name in names if name not in found)] = path
    if not found:
        raise UsageError(f"{folder}: there is no submission in it: no folder, and no file that ends in {ending}")
    return dict(sorted(found.items()))


def _handed(name: str, path: Path, students: Sequence[Student], *, source_name: str, rule: str) -> Handed:
    try:
        source = collect(path, source_name, rule)
    except UsageError as error:
        return Handed(name=name, students=tuple(students), trouble=str(error))
    return Handed(name=name, students=tuple(students), source=source)
