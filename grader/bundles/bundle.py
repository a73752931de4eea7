"""Bundles: files made from an assignment and some of its cases, and put into a folder in one step.

The files of the grader that a bundle contains, so that it can grade on its own, are found by walking known folders, not
with git, so that a copy of a clone can make bundles too. Everything else in these folders is omitted: tests, labelled
submissions, stores, caches, environments, and files of other kinds.

Students get the public cases only, and no oracle that is nearly the solution. A file with the weights of the hidden
cases replaces these cases; where this file exists, `--public-only` is implied.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.assignment.case_selection import HIDDEN_FILE, hidden_text, hidden_weights, weights
from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.errors import UsageError, unwritable
from grader.core.verdict import Visibility
from grader.judge.recorded import FILE, recorded
from grader.labs import LABS

_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, the earliest possible one: the same files make the same bytes."""
_REGULAR = 0o100000


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a bundle."""

    name: str
    """The path in the bundle, with slashes."""
    content: bytes
    runs: bool = False
    """Whether it is a program."""

    @property
    def mode(self) -> int:
        """The permissions of the file; those in the clone that makes the bundle have no influence."""
        return 0o755 if self.runs else 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A kind of bundle: how it is made, and its description."""

    what: str
    """A short description."""
    make: Callable[[Lab, Sequence[Case]], Iterable[File]]
    """Makes the files from an assignment and the cases that the bundle is to contain."""
    then: str
    """What the user does with the bundle next."""


def zipped(files: Iterable[File]) -> bytes:
    """Return a zip archive of the files, sorted by name. The same files give the same archive."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for file in sorted(files, key=lambda file: file.name):
            entry = zipfile.ZipInfo(file.name, _TIME)
            entry.create_system = 3  # Unix; otherwise unzip programs ignore the permissions
            entry.external_attr = (_REGULAR | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            writer.writestr(entry, file.content)
    return archive.getvalue()


def check_folder(folder: Path, *, replace: bool | None = None) -> None:
    """Raise `UsageError` when a bundle cannot be put there, before any unneeded work is done.

    `replace` is None where the command has no such option.
    """
    if folder.name in ("", ".."):
        raise UsageError(f"{folder}: write the name of a new folder")
    if not folder.parent.is_dir():
        raise UsageError(f"{folder}: there is no folder {folder.parent}")
    if not os.access(folder.parent, os.W_OK):
        raise UsageError(f"{folder}: no permission to write to {folder.parent}")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder}: it is not a folder; write the name of a new one")
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        option = "" if replace is None else ", or --replace to replace an earlier bundle"
        raise UsageError(f"{folder}: it is not empty; write another name{option}")


def put(files: Iterable[File], folder: Path, *, replace: bool | None = None) -> None:
    """Put the files into a new folder: it exists complete or not at all, however this process ends.

    With `replace` an earlier bundle is replaced. Raises `UsageError` like `check_folder`, and when the folder contains
    a file that is not part of this bundle: it may be the user's work.
    """
    check_folder(folder, replace=replace)
    wanted = {file.name: file for file in files}
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    if others := [name for name in names if name not in wanted]:
        raise UsageError(f"{folder}: {others[0]} in it is not part of this bundle; move it, or write another name")
    try:
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:  # such as in /proc, where root may write and nobody can
        raise unwritable(folder, error) from error
    try:
        for file in wanted.values():
            _write(staging / "new" / file.name, file)
        if folder.is_dir() and any(folder.iterdir()):
            folder.rename(staging / "old")
        (staging / "new").rename(folder)
    except BaseException:
        if (staging / "old").is_dir() and not folder.exists():
            (staging / "old").rename(folder)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file.content)
    if file.runs:
        path.chmod(path.stat().st_mode | 0o111)


FOLDER = "grading"
"""The folder of the grader in a bundle for students."""

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("reference", "grader")
_KINDS = frozenset({".py", ".typed", ".c", ".h", ".S", ".jinja", ".css", ".js", ".sh", ".md", ".mk", ".txt", ".yml"})
"""The suffixes of the files of `_PACKAGES` that a bundle contains."""
_LEFT_OUT = frozenset({"tests", "bench", "__pycache__", "README.md"})
"""Names in the packages that grading never needs."""
_SINGLE = ("pyproject.toml", "scripts/setup", "scripts/grade", ".ci/grading.lock")


def tree(lab: Lab, cases: Iterable[Case], *, without: Collection[Path] = ()) -> Iterator[File]:
    """Yield all files that grading with these cases needs, but those in `without`; `scripts/setup` sets them up.

    Of other labs there is nothing: their oracles may be nearly the solutions.

    Raises `UsageError` where the grader was installed without the files that only a clone has.
    """
    if not all((_ROOT / name).is_file() for name in _SINGLE):
        raise UsageError("only a clone can make bundles (scripts/grade pack): what pip installed lacks its scripts")
    for package in _PACKAGES:
        for path in _walk(_ROOT / package):
            if path not in without and not _is_of_another(path, lab):
                yield _file(path)
    for path in sorted(lab.cases.glob("*.toml")):  # rubric and sentences of the handout; cases are in subfolders
        yield _file(path)
    for case in cases:
        yield _file(case.path)
    for name in (*_SINGLE, *_locks(lab)):
        yield _file(_ROOT / name)


def _locks(lab: Lab) -> Iterator[str]:
    """Yield the locks of what a lab needs besides, by its `needs.txt`."""
    needs = _ROOT / "grader" / "labs" / lab.name / "needs.txt"
    if needs.is_file():
        yield from (f".ci/{word}.lock" for word in needs.read_text(encoding="utf-8").split())


def _is_of_another(path: Path, lab: Lab) -> bool:
    """Whether a file belongs to another lab, whose packages have its name."""
    parts = path.relative_to(_ROOT).parts
    folder = parts[2] if parts[:2] == ("grader", "labs") else parts[1] if parts[0] == "reference" else ""
    return folder in LABS and folder != lab.name


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files of a package. Symbolic links are skipped: they could point anywhere."""
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file() and path.suffix in _KINDS:
            yield path


def _file(path: Path) -> File:
    name = path.relative_to(_ROOT).as_posix()
    return File(name=name, content=path.read_bytes(), runs=bool(path.stat().st_mode & 0o100))


def public_tree(lab: Lab, cases: Sequence[Case], folder: str = FOLDER) -> Iterator[File]:
    """Yield the grader's files, below `folder` of a bundle. The cases may include hidden ones, which are left out."""
    public = [case for case in cases if case.visibility is Visibility.PUBLIC]
    known = hidden_weights(lab)  # the copy that makes the bundle may have no hidden cases either
    text = hidden_text(weights(lab.rubric, cases) if known is None else known)
    name = (lab.cases / HIDDEN_FILE).relative_to(lab.cases.parents[1]).as_posix()
    files = [*tree(lab, public, without=lab.oracle_files), File(name=name, content=text.encode())]
    if lab.oracle_files:
        place = (lab.cases / FILE).relative_to(lab.cases.parents[1]).as_posix()
        files.append(File(name=place, content=recorded(public, lab.model)))
    for file in files:
        yield replace(file, name=f"{folder}/{file.name}")
