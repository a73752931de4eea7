"""Read submissions in zips: one for each student, alone or in the student's folder, or one of the whole class.

A student's zip may contain one more zip, but no third one. A zip of the class contains what a folder of the class would
contain: a folder, a C file or a zip for each student. It is unpacked for one student at a time, and a problem in one
part of it concerns only that student.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from grader.assignment.source import Source, collect, levels_below
from grader.classroom.zip_archive import Archive, Member, opened
from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.system.private_folder import private_folder

__all__ = ["EXPORT", "ZIP", "class_zip", "collect_zipped", "outlined", "was_unpacked"]

ZIP = ".zip"
EXPORT = "submission_metadata.yml"
"""The list of submissions in a Gradescope export."""

_MOST_NESTED = 2
"""The most zips in which a file may be nested; the zip of the whole class does not count."""


def collect_zipped(path: Path, source_name: str, rule: str, *, name: str, nested: int = 0) -> Source:
    """Return what `collect` returns for a submission; a submission that is a zip is unpacked first.

    The same holds for the only zip in a submission without a file of that name.

    Raises `UsageError` as `collect` does, and for a zip that cannot be unpacked.
    """
    if path.suffix.lower() == ZIP and path.is_file() and not path.is_symlink():
        if nested == _MOST_NESTED:
            raise UsageError(f"{name}: it is a zip in a zip in a zip; hand in {source_name}, or one zip that holds it")
        with private_folder(None) as made:
            with opened(path, name) as archive:
                archive.unpack(archive.members, made, source_name)
            return collect_zipped(made, source_name, rule, name=name, nested=nested + 1)
    source = collect(path, source_name, rule, name=name)
    inner = _zips(path, source_name) if source.path is None else []
    if len(inner) > 1:
        listed = ", ".join(one_line(str(one.relative_to(path))) for one in inner[:5])
        raise UsageError(
            f"{name}: there is no {source_name} in it, and more than one zip: {listed}; leave the right one"
        )
    return collect_zipped(inner[0], source_name, rule, name=name, nested=nested) if inner else source


def class_zip(folder: Path, source_name: str) -> Path | None:
    """Return a class's zip: the path itself, or the only zip in a folder if it has several submissions; else None."""
    if folder.is_file():
        return folder
    seen = [path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "__MACOSX"]
    if len(seen) != 1 or seen[0].suffix.lower() != ZIP or not seen[0].is_file():
        return None
    try:
        with opened(seen[0], str(seen[0])) as archive:
            above = _above(archive, source_name)
            files = [one for one in archive.members if one.is_file]
            ours = [one.parts[above:] for one in files if one.parts[-1] == source_name or one.ending == ZIP]
    except UsageError:
        return None  # reported when it is unpacked, as the zip of one student
    return seen[0] if len({parts[0] for parts in ours}) > 1 and (source_name,) not in ours else None


def was_unpacked(path: Path, names: Collection[str]) -> bool:
    """Whether everything at the top of the zip exists already beside it."""
    try:
        with opened(path, str(path)) as archive:
            return bool(archive.members) and all(one.parts[0] in names for one in archive.members)
    except UsageError:
        return False  # reported when it is unpacked


@contextlib.contextmanager
def outlined(packed: Path, source_name: str) -> Iterator[tuple[Path, Callable[[Path], AbstractContextManager[str]]]]:
    """Yield a folder like the unpacked class zip, but with empty entries, and what fills one entry for a while."""
    with opened(packed, str(packed)) as archive, private_folder(None) as made:
        above = _above(archive, source_name)
        groups: dict[str, list[Member]] = {}
        for member in archive.members:
            if len(member.parts) > above or member.leads_out:
                groups.setdefault(member.parts[min(above, len(member.parts) - 1)], []).append(member)
        for name, members in groups.items():
            _outline(archive, made / name, members, above)

        @contextlib.contextmanager
        def filled(path: Path) -> Iterator[str]:
            shown = one_line(f"{packed}/{path.name}")
            part = Archive(name=shown, file=archive.file, members=tuple(groups[path.name]))
            _remove(path)
            try:
                part.unpack(part.members, made, source_name, above=above)
                if not path.exists():
                    path.mkdir()
                yield shown
            finally:
                _remove(path)

        yield made, filled


def _outline(archive: Archive, path: Path, members: list[Member], above: int) -> None:
    """Make an empty file or folder in the place of a submission; the list of an export is written at once."""
    if path.name == EXPORT:
        archive.unpack_one(members[0], path)
    elif len(members) == 1 and len(members[0].parts) == above + 1 and members[0].is_file:
        path.touch()
    else:
        path.mkdir()


def _above(archive: Archive, source_name: str) -> int:
    """Return 1 if everything is in one folder that is not a submission, else 0."""
    files = [member for member in archive.members if member.is_file]
    inner = {member.parts[1] for member in files if len(member.parts) > 1}
    alone = len({member.parts[0] for member in files}) == 1 and all(len(member.parts) > 1 for member in files)
    return int(alone and len(inner) > 1 and source_name not in inner)


def _zips(folder: Path, source_name: str) -> list[Path]:
    """Return the nearest zips in a folder."""
    if not folder.is_dir():
        return []
    for level in levels_below(folder, source_name):
        found = [one for one in level if one.name.lower().endswith(ZIP) and one.is_file(follow_symlinks=False)]
        if found:
            return sorted(map(Path, found))
    return []


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
