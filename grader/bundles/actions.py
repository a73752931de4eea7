"""A bundle for a student's repository on GitHub: a workflow and the grader that it runs.

It is a self-check and gives no grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.assignment.lab import Lab
from grader.bundles.bundle import Bundle, File
from grader.bundles.public import public_tree
from grader.bundles.template import filled
from grader.core.case import Case


def _make(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    yield filled("actions_workflow.yml", ".github/workflows/self-check.yml", lab)
    yield from public_tree(lab, cases)


BUNDLE = Bundle(
    what="a workflow for students' repositories, public cases only",
    make=_make,
    then="copy both folders, .github too, into the repository that students start from",
)
