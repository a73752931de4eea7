"""Read a student's zip: the submission itself, or a file in the student's folder.

A student's zip may contain one more zip, but no third one.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from grader.assignment.source import Source, collect, levels_below
from grader.classroom.zip_archive import MOST_TOTAL, ZIP, open_regular, opened
from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.system.folders import private_folder

_MOST_NESTED = 2
"""The most zips in which a file may be nested; the zip of the whole class does not count."""

_Parts = tuple[str, ...]


def collect_zipped(path: Path, source_name: str, rule: str, *, name: str, nested: int = 0) -> Source:
    """Return what `collect` returns for a submission; a submission that is a zip is unpacked first.

    The same holds for the only zip in a submission without a file of that name.

    Raises `UsageError` as `collect` does, and for a zip that cannot be unpacked.
    """
    if path.suffix.lower() == ZIP and path.is_file() and not path.is_symlink():
        if nested == _MOST_NESTED:
            raise UsageError(f"{name}: it is a zip in a zip in a zip; hand in {source_name}, or one zip that holds it")
        with private_folder(None) as unpacked:
            with opened(path, name) as archive:
                archive.unpack(unpacked, source_name)
            return collect_zipped(unpacked, source_name, rule, name=name, nested=nested + 1)
    source = collect(path, source_name, rule, name=name)
    inner = _zips(path, source_name) if source.path is None else []
    if len(inner) > 1:
        listed = ", ".join(one_line(str(file.relative_to(path))) for file in inner[:5])
        raise UsageError(
            f"{name}: there is no {source_name} in it, and more than one zip: {listed}; leave the right one"
        )
    return collect_zipped(inner[0], source_name, rule, name=name, nested=nested) if inner else source


def was_unpacked(packed: Path, folder: Path, source_name: str) -> bool:
    """Whether a folder holds the files of a zip, and no others, as far as a submission can consist of them.

    Programs that unpack a zip keep the only folder at its top, or omit it. What cannot be read counts as not unpacked:
    then the zip is a submission of its own, and the reason is reported with it.
    """
    try:
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
    except (UsageError, OSError):
        return False


def _without_top(files: dict[_Parts, tuple[int, int]]) -> dict[_Parts, tuple[int, int]]:
    """Return the files without the folder in which all of them are; empty when there is none."""
    alone = len({parts[0] for parts in files}) == 1 and all(len(parts) > 1 for parts in files)
    return {parts[1:]: content for parts, content in files.items()} if alone else {}


def _files(folder: Path, source_name: str, kinds: tuple[str, ...]) -> dict[_Parts, Path]:
    """Return the files of these kinds below a folder, without hidden ones, by their relative paths."""
    return {
        path.relative_to(folder).parts: path
        for level in levels_below(folder, source_name)
        for path in map(Path, level)
        if path.suffix.lower() in kinds and not path.name.startswith(".") and not path.is_dir()
    }


def _is_same(path: Path, size: int, checksum: int) -> bool:
    """Whether a file has this size and CRC-32."""
    descriptor = open_regular(path)
    try:
        if os.fstat(descriptor).st_size != size or size > MOST_TOTAL:
            return False
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return zlib.crc32(file.read(size + 1)) == checksum
    finally:
        os.close(descriptor)


def _zips(folder: Path, source_name: str) -> list[Path]:
    """Return the nearest zips in a folder."""
    if not folder.is_dir():
        return []
    for level in levels_below(folder, source_name):
        zips = [entry for entry in level if entry.name.lower().endswith(ZIP) and entry.is_file(follow_symlinks=False)]
        if zips:
            return sorted(map(Path, zips))
    return []
