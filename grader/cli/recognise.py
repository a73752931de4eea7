"""Find the lab of a submission by the name of its file, where no --lab says which it is."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from grader.assignment.source import missing, names_below, nearest_of
from grader.core.errors import UsageError
from grader.core.sanitize import one_line
from grader.labs import LABS, LabEntry, present

_MOST_BYTES = 20 << 20
"""Of a zip in a zip that is looked into."""
_UNREADABLE = (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile)
"""What reading a zip raises: damaged, encrypted (RuntimeError), or packed in a way that Python does not know."""


def only_lab() -> str:
    """Return the name of the only lab. Raises `UsageError` where there are several."""
    labs = present()
    if len(labs) == 1:
        return labs[0]
    raise UsageError(f"which assignment? write --lab and one of {', '.join(labs)}")


def lab_of_submissions(paths: Iterable[Path]) -> str:
    """Return the name of the lab whose file is at all paths: the file itself, or the nearest below a folder.

    A path at which there is nothing tells no lab. Raises `UsageError` where there is a file of no lab, where files of
    several labs are equally near, or where there is nothing at all.
    """
    seen: dict[str, Path] = {}
    wanted = list(paths)
    for path in wanted:
        if os.path.exists(path):  # noqa: PTH110 - False for a name that is too long, too
            names = nearest_of(path, _sources()) if path.is_dir() else {path.name}
            seen.setdefault(_decided(path, names), path)
    if len(seen) > 1:
        places = ", ".join(f"{one_line(str(path))} is of {lab}" for lab, path in seen.items())
        raise UsageError(f"these are of different assignments: {places}; grade each with a command of its own")
    if not seen and len(present()) > 1:
        raise UsageError(f"{one_line(str(wanted[0]))}: {missing(' or '.join(sorted(_sources())))}")
    return next(iter(seen), None) or only_lab()


def lab_of_class(folder: Path) -> str:
    """Return the name of the lab whose files are in a folder or a zip of submissions, at any depth.

    Raises `UsageError` where there is nothing, or files of no lab, or of several.
    """
    if not folder.exists():
        raise UsageError(f"{one_line(str(folder))}: there is no such folder")
    names = names_below(folder) if folder.is_dir() else {folder.name}
    for path in folder.glob("*.zip") if folder.is_dir() else [folder]:
        names |= set(_in_zip(path))
    return _decided(folder, names)


def _in_zip(path: Path | IO[bytes], *, inner: bool = False) -> Iterator[str]:
    """The names of files in a zip, and in zips within it; none where it cannot be read: the batch will say why."""
    with contextlib.suppress(*_UNREADABLE), zipfile.ZipFile(path) as packed:
        for entry in packed.infolist():
            yield entry.filename.rpartition("/")[2]
            if entry.filename.endswith(".zip") and not inner and entry.file_size <= _MOST_BYTES:
                with packed.open(entry) as file:
                    yield from _in_zip(io.BytesIO(file.read(_MOST_BYTES)), inner=True)


def _decided(path: Path, names: set[str]) -> str:
    """Return the lab of files with these names: that of a file's whole name, else of a suffix that only one lab has."""
    entries = _entries()
    labs = [lab for lab, entry in entries.items() if entry.source_name in names]
    suffixes = {Path(name).suffix for name in names} - {""}
    labs = labs or [lab for lab, entry in entries.items() if Path(entry.source_name).suffix in suffixes]
    if len(labs) == 1:
        return labs[0]
    if labs:
        why = f"it may be a submission of {' or of '.join(labs)}; write --lab and one of them"
    else:
        wanted = ", ".join(f"{entry.source_name} ({lab})" for lab, entry in entries.items())
        why = f"there is no submission here: looked for {wanted}; with --lab LAB a missing file is graded as missing"
    raise UsageError(f"{one_line(str(path))}: {why}")


def _entries() -> dict[str, LabEntry]:
    return {lab: LABS[lab] for lab in present()}


def _sources() -> set[str]:
    return {entry.source_name for entry in _entries().values()}
