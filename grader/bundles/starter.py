"""The files that students start with: those of the assignment, and the grader with the public cases as a self-check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.assignment.lab import Lab
from grader.bundles.bundle import Bundle, File
from grader.bundles.public import public_tree
from grader.bundles.template import filled
from grader.core.case import Case


def _make(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    for name, path in lab.starter.items():
        yield File(name=name, content=path.read_bytes())
    handout = lab.cases / "handout.md"
    if handout.is_file():
        yield File(name="HANDOUT.md", content=handout.read_bytes())
    yield filled("starter_readme.md", "README.md", lab)
    yield filled("starter_check.sh", "check", lab, runs=True)
    yield filled("starter_grade.sh", "scripts/grade", lab, runs=True)
    yield filled("starter_tasks.json.txt", ".vscode/tasks.json", lab)
    yield File(name=".gitignore", content=b"*.o\n.venv/\n__pycache__/\n*.egg-info/\nreport.html\nrepro.*\nrepro\n")
    yield from public_tree(lab, cases)


BUNDLE = Bundle(
    what="what students begin with, and the public cases to check themselves",
    make=_make,
    then="hand it out as it is; no hidden case is in it, and its README.md says what the grader in it knows",
)
