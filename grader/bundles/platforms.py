"""The bundles of `BUNDLES`: what each platform needs, made from the templates beside this module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.assignment.lab import Lab
from grader.bundles.bundle import FOLDER, Bundle, File, public_tree, tree, zipped
from grader.core.case import Case

_PACKAGES = ("gcc", "libc6-dev", "python3-venv")
"""Debian's packages for any lab: the sandbox's launcher is compiled once, and the grader has its own environment."""

_ENGINE = """It must know what is right, so parts of it are code for this assignment. The rules of
academic integrity hold for that code too: what you hand in is your own work."""
_RECORDED = """It has no reference program: it knows only what is right in each step of
the public cases. So it judges a case up to the first step that goes wrong; the course's copy goes on from there, and
may give more points."""
"""What students read of the grader in their bundle."""

_LINE_ENDS = b"* text=auto eol=lf\n"
"""For Git on Windows, which otherwise gives shell scripts line ends that no shell reads."""


def _gradescope(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    """Yield the zip that Gradescope takes: the grader's files, and two scripts at its root.

    `setup.sh` runs once, as root and with network, when Gradescope builds the image from the zip. `run_autograder` runs
    for each submission, as root; it must work without network. These two scripts define everything that is done.
    """
    scripts = {"setup.sh": "gradescope_setup.sh", "run_autograder": "gradescope_run.sh"}  # Gradescope's names, and ours
    files = [_filled(template, name, lab, runs=True) for name, template in scripts.items()]
    yield File(name="gradescope.zip", content=zipped([*files, *tree(lab, cases)]))


def _classroom50(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    """Yield a folder `autograders/SLUG/` for a classroom of Classroom 50's configuration repository.

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

    Editors and GitHub Codespaces open the folder in it, which is how macOS and Windows can grade. Its image is a plain
    Debian for both Intel and ARM processors, on which the trials set bundles up; the grader's own script does the rest.
    """
    return _filled("devcontainer.json.txt", ".devcontainer/devcontainer.json", lab)


def _filled(template: str, name: str, lab: Lab, *, runs: bool = False) -> File:
    """Return a file made of a template beside this module: a lab's values replace `@LAB@` and similar placeholders.

    Where there is a template of that name for the lab's language, such as `starter_readme_python.md`, it is used.
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
        "PACKAGES": " ".join([*_PACKAGES, *lab.runtime.packages]),
        "TOOLS": " ".join([*_PACKAGES, *lab.runtime.packages, *(("make", "gdb") if _is_in_c(lab) else ())]),
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
