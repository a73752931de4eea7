"""Bundles for the platforms where students submit. A new bundle is a function and an entry of `BUNDLES`.

A bundle is made of an assignment, some of its cases, and the templates in this folder. `put` writes it in one step.

Each bundle contains the files of the grader that it needs to grade on its own. They are found by walking known folders.
Git is not used, so that a copy of a clone can make bundles too. Tests, labelled submissions, stores, caches,
environments, and files of other kinds are left out.

Students get the public cases only, and no oracle that is nearly the solution. A file with the weights of the hidden
cases replaces these cases; where this file exists, `--public-only` is implied.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.assignment.case_files import HIDDEN_FILE, hidden_text, hidden_weights, weights
from grader.assignment.lab import Lab
from grader.core.case import Case
from grader.core.errors import UsageError, unwritable
from grader.core.verdict import Visibility
from grader.judge.recorded import FILE, recorded
from grader.labs import LABS

_TIME = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive, the earliest possible one: so equal files give equal archives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a bundle."""

    name: str
    """The path in the bundle, with slashes."""
    content: bytes
    runs: bool = False
    """Whether the file is a program."""

    @property
    def mode(self) -> int:
        """The permissions of the file; its permissions in the clone that makes the bundle have no influence."""
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
            entry.external_attr = (stat.S_IFREG | file.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            writer.writestr(entry, file.content)
    return archive.getvalue()


def check_folder(folder: Path, *, replace: bool | None = None) -> None:
    """Raise `UsageError` if a bundle cannot be put into `folder`; call it before any work that would be in vain.

    `replace` is None if the command has no option `--replace`.
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
    except OSError as error:  # such as in /proc: os.access lets root write there, but nobody can
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
"""Names of files and folders in the packages that grading never needs."""
_FOR_INSTRUCTORS = tuple(_ROOT / "grader" / name for name in ("classroom/mending.py", "search/repairs.py"))
"""The modules that find changes which make a program right. Bundles for students do not contain them."""
_SINGLE = ("pyproject.toml", "scripts/setup", "scripts/grade", ".ci/grading.lock")


def tree(lab: Lab, cases: Iterable[Case], *, without: Collection[Path] = ()) -> Iterator[File]:
    """Yield all files with which a bundle can install itself (`scripts/setup`) and grade these cases, except `without`.

    Files of other labs are left out: their oracles may be nearly the solutions.

    Raises `UsageError` if the grader was installed without the files that only a clone has.
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
    """Yield the lock files for the additional Python packages that the lab names in its `needs.txt`."""
    needs = _ROOT / "grader" / "labs" / lab.name / "needs.txt"
    if needs.is_file():
        yield from (f".ci/{word}.lock" for word in needs.read_text(encoding="utf-8").split())


def _is_of_another(path: Path, lab: Lab) -> bool:
    """Whether a file belongs to another lab: a lab's packages are named like the lab."""
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
    files = [*tree(lab, public, without={*lab.oracle_files, *_FOR_INSTRUCTORS}), File(name=name, content=text.encode())]
    if lab.oracle_files:
        place = (lab.cases / FILE).relative_to(lab.cases.parents[1]).as_posix()
        files.append(File(name=place, content=recorded(public, lab.model)))
    for file in files:
        yield replace(file, name=f"{folder}/{file.name}")


_DEBIAN = ("gcc", "libc6-dev", "python3-venv")
"""Debian's packages for any lab: the sandbox's launcher is compiled once, and the grader has its own environment."""

_ENGINE = """It must know what is right, so parts of it are code for this assignment. The rules of
academic integrity hold for that code too: what you hand in is your own work."""
_RECORDED = """It has no reference program: it knows only what is right in each step of
the public cases. So it judges a case up to the first step that goes wrong; the course's copy goes on from there, and
may give more points."""
"""What a bundle tells students about the grader in it: `_RECORDED` if the bundle has no oracle, else `_ENGINE`."""

_LINE_ENDS = b"* text=auto eol=lf\n"
"""For Git on Windows, which otherwise gives shell scripts line ends that no shell can read."""


def _gradescope(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    """Yield the zip that Gradescope takes: the grader's files, and two scripts at its root.

    `setup.sh` runs once, as root and with network, when Gradescope builds the image from the zip. `run_autograder` runs
    for each submission, as root; it must work without network. These two scripts define everything that is done.
    """
    _require_whole_clone(lab)
    scripts = {"setup.sh": "gradescope_setup.sh", "run_autograder": "gradescope_run.sh"}  # Gradescope's names, and ours
    files = [_filled(template, name, lab, runs=True) for name, template in scripts.items()]
    yield File(name="gradescope.zip", content=zipped([*files, *tree(lab, cases)]))


def _require_whole_clone(lab: Lab) -> None:
    if hidden_weights(lab) is not None:
        raise UsageError("this copy of the grader has no hidden cases and no handout; pack from the course's own clone")


def _classroom50(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    """Yield the folder `autograders/SLUG/`, to be copied into a classroom's folder of a `classroom50` repository.

    Classroom 50's runner fetches the folder for every submission and starts `autograder.py` in the student's checkout.
    The folder is published on the organisation's web pages, so it contains no hidden case.
    """
    folder = f"autograders/{_slug(lab)}"
    yield _filled("classroom50_readme.md", "README.md", lab)
    yield _filled("classroom50_autograder.py.txt", f"{folder}/autograder.py", lab, runs=True)
    yield from public_tree(lab, cases, f"{folder}/{FOLDER}")


def _actions(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    """Yield a workflow for a student's repository on GitHub, and the grader that it runs, as a self-check."""
    yield _filled("actions_workflow.yml", ".github/workflows/self-check.yml", lab)
    yield _container(lab)
    yield File(name=f"{FOLDER}/.gitattributes", content=_LINE_ENDS)
    yield from public_tree(lab, cases)


def _starter(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    """Yield the files that students start with: those of the assignment, and the grader with the public cases."""
    _require_whole_clone(lab)
    for name, path in lab.starter.items():
        yield File(name=name, content=path.read_bytes())
    yield File(name="HANDOUT.md", content=(lab.cases / "handout.md").read_bytes())
    yield _filled("starter_readme.md", "README.md", lab)
    if _is_in_c(lab):
        yield _filled("starter_makefile.mk", "Makefile", lab)
    yield _filled("starter_check.sh", "check", lab, runs=True)
    yield _filled("starter_grade.sh", "scripts/grade", lab, runs=True)
    yield _filled("starter_tasks.json.txt", ".vscode/tasks.json", lab)
    yield _container(lab)
    yield File(name=".gitattributes", content=_LINE_ENDS)
    yield File(name=".gitignore", content=b"*.o\n.venv/\n__pycache__/\n*.egg-info/\nreport.html\nrepro.*\nrepro\n")
    yield from public_tree(lab, cases)


def _container(lab: Lab) -> File:
    """Return the description of a Linux container with all tools, by the published schema `devContainer.base`.

    Editors and GitHub Codespaces open the folder in the container, so macOS and Windows can grade. The image is plain
    Debian for Intel and ARM processors, in which `tests/trials` installs bundles too; `scripts/setup` does the rest.
    """
    return _filled("devcontainer.json.txt", ".devcontainer/devcontainer.json", lab)


def _filled(template: str, name: str, lab: Lab, *, runs: bool = False) -> File:
    """Return a file made of a template next to this module: a lab's values replace `@LAB@` and similar placeholders.

    A template for the lab's language, such as `starter_readme_python.md`, is preferred. `runs`: see `File.runs`.
    """
    here = Path(__file__).with_name(template)
    own = here.with_name(f"{here.stem}_{lab.runtime.language}{here.suffix}")
    text = (own if own.is_file() else here).read_text(encoding="utf-8")
    words = {
        "LAB": lab.name,
        "TITLE": lab.title,
        "SOURCE": lab.source_name,
        "STEM": Path(lab.source_name).stem,
        "KNOWS": _RECORDED if lab.oracle_files else _ENGINE,
        "FOLDER": FOLDER,
        "SLUG": _slug(lab),
        "PACKAGES": " ".join([*_DEBIAN, *lab.runtime.packages]),
        "TOOLS": " ".join([*_DEBIAN, *lab.runtime.packages, *(("make", "gdb") if _is_in_c(lab) else ())]),
        "APT": json.dumps(list(lab.runtime.packages)),
        "REPRO": lab.reproduce_command,
    }
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return File(name=name, content=text.encode(), runs=runs)


def _is_in_c(lab: Lab) -> bool:
    return lab.runtime.language == "c"


def _slug(lab: Lab) -> str:
    """Return the name of a lab in the form that platforms use in URLs."""
    return lab.name.replace("_", "-")


BUNDLES = {
    "gradescope": Bundle(
        what="a zip to upload as an autograder, hidden cases and all",
        make=_gradescope,
        then="upload gradescope.zip at Configure Autograder; it holds the hidden cases, so keep it to yourselves",
    ),
    "classroom50": Bundle(
        what="an autograder for Classroom 50, public cases only",
        make=_classroom50,
        then="put autograders/ into your classroom's folder; README.md says what to write into assignments.json",
    ),
    "actions": Bundle(
        what="a workflow for students' repositories, public cases only",
        make=_actions,
        then="copy all folders, .github and .devcontainer too, into the repository that students start from",
    ),
    "starter": Bundle(
        what="what students begin with, and the public cases to check themselves",
        make=_starter,
        then="hand it out as it is; no hidden case is in it, and its README.md says what the grader in it knows",
    ),
}
"""The bundles that `grade pack` makes, by name."""
