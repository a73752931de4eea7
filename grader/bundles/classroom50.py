"""The autograder for Classroom 50: a folder `autograders/SLUG/` for a classroom of its configuration repository.

Classroom 50's runner fetches the folder for every submission and starts `autograder.py` in the student's checkout. The
folder is published on the organisation's web pages, so it contains no hidden case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.assignment.lab import Lab
from grader.bundles.bundle import Bundle, File
from grader.bundles.public import public_tree
from grader.bundles.template import FOLDER, filled, slug
from grader.core.case import Case


def _make(lab: Lab, cases: Sequence[Case]) -> Iterator[File]:
    folder = f"autograders/{slug(lab)}"
    yield filled("classroom50_readme.md", "README.md", lab)
    yield filled("classroom50_autograder.py.txt", f"{folder}/autograder.py", lab, runs=True)
    yield from public_tree(lab, cases, f"{folder}/{FOLDER}")


BUNDLE = Bundle(
    what="an autograder for Classroom 50, public cases only",
    make=_make,
    then="put autograders/ into your classroom's folder; README.md says what to write into assignments.json",
)
