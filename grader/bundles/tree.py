"""Select the files of the grader that a bundle contains, so that it can grade on its own.

They are found by walking known folders, not with git, so that a copy of a clone can make bundles too. Everything else
beside them is omitted: tests, labelled submissions, stores, caches, environments, and files of other kinds.

Students get the public cases only, and no oracle that is nearly the solution. A file with the weights of the hidden
cases replaces these cases; where this file exists, `--public-only` is implied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from grader.assignment.case_selection import HIDDEN_FILE, hidden_text, hidden_weights, weights
from grader.assignment.lab import Lab
from grader.bundles.bundle import File
from grader.core.case import Case
from grader.core.errors import UsageError
from grader.core.verdict import Visibility
from grader.judge.recorded import FILE, recorded
from grader.labs import LABS

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
